"""Fixtures of the contract tests."""

from __future__ import annotations

import pytest
from tests.entries import NEEDS_BACKBONE

from motet.experiment.build.federation import Federation


@pytest.fixture
def federation(request: pytest.FixtureRequest, federation: Federation) -> Federation:
    """The default federation, or the one with an encoder-decoder if the algorithm under test needs it."""
    callspec = getattr(request.node, "callspec", None)
    needs_backbone = callspec is not None and callspec.params.get("name") in NEEDS_BACKBONE
    chosen: Federation = request.getfixturevalue("backbone_federation") if needs_backbone else federation
    return chosen
