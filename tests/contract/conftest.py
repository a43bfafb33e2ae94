"""Fixtures of the contract tests."""

from __future__ import annotations

import pytest
from tests.entries import NEEDS_ADAPTERS, NEEDS_BACKBONE

from motet.experiment.build.federation import Federation


@pytest.fixture
def federation(request: pytest.FixtureRequest, federation: Federation) -> Federation:
    """The default federation, or the one with adapters or an encoder-decoder if the algorithm under test needs it."""
    callspec = getattr(request.node, "callspec", None)
    name = None if callspec is None else callspec.params.get("name")
    special = {
        **dict.fromkeys(NEEDS_BACKBONE, "backbone_federation"),
        **dict.fromkeys(NEEDS_ADAPTERS, "adapter_federation"),
    }
    chosen: Federation = request.getfixturevalue(special[name]) if name in special else federation
    return chosen
