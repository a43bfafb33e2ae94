"""What a client prints during a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from motet.core.errors import RunError
from motet.experiment.deploy.client_progress import ClientProgress
from motet.experiment.deploy.join_run import join_run
from motet.experiment.deploy.remote_client import JoinOptions
from motet.experiment.recipe.run_config import RunConfig


def test_each_round_is_printed_once_and_the_evaluation_at_the_end_is_none() -> None:
    lines: list[str] = []
    observe = ClientProgress(2, "accuracy", lines.append).observe_rounds(lambda *request: request)
    for round, address in ((0, "fedavg.train"), (0, "secure.upload"), (1, "evaluate.sum_metrics"), (1, "fedavg.train")):
        assert observe("north", round, address) == ("north", round, address)
    observe("north", 2, "secure.upload")  # the last evaluation under a secure sum
    assert lines == ["round 1 of 2", "round 2 of 2"]


def test_a_server_that_is_down_is_one_line_and_not_one_for_each_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, lines = [], []

    def connect() -> None:
        attempts.append(1)
        if len(attempts) == 5:
            monkeypatch.setattr("time.monotonic", lambda now=time.monotonic(): now + 10)
        raise ConnectionError("refused")

    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"motet.transport.client_connection.{pause}", 0.001)
    config = RunConfig.from_settings("r", {"data": {"name": "toy-classification"}, "model": {"name": "tiny"}})
    options = JoinOptions(names=("north",), data=None, config=config, state_folder=tmp_path)
    with pytest.raises(RunError, match="cannot be reached"):
        join_run(options, connect, "", 9.0, lines.append)  # type: ignore[arg-type]
    assert lines == ["no link to the server (refused); trying again"]
