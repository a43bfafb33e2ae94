"""For the contract suite: the common federation, or one whose model suits the algorithm under test."""

from __future__ import annotations

import pytest
from tests.entries import ON_A_BACKBONE

from motet.experiment.build.federation import Federation


@pytest.fixture
def federation(request: pytest.FixtureRequest, federation: Federation) -> Federation:
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    found: Federation = request.getfixturevalue("backbone_federation") if name in ON_A_BACKBONE else federation
    return found
