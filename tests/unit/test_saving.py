"""How often a run is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from motet.experiment.loop.run_loop import FederatedRun


@pytest.mark.parametrize(
    ("seconds", "saving", "since", "worth"),
    [
        (60, 0.1, 61, True),
        (60, 0.1, 59, False),
        (60, 10.0, 61, False),  # a large state: a twentieth of the time at most
        (60, 10.0, 201, True),
        (0, 10.0, 1, True),  # asked for after every round
    ],
)
def test_keeping_a_run_takes_little_of_its_time(
    seconds: float, saving: float, since: float, worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("motet.experiment.loop.run_loop.time", SimpleNamespace(monotonic=lambda: 1000.0))
    running: Any = SimpleNamespace(
        plan=SimpleNamespace(checkpoint=SimpleNamespace(seconds=seconds)), saved=1000.0 - since, saving=saving
    )
    assert FederatedRun.worth_saving(running) is worth
