"""A run that is killed at any moment resumes and ends as if it had not been interrupted."""

from __future__ import annotations

import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.motet_process import MotetProcess, wait_for_rounds

from motet.core.errors import ConfigError
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.run_folder import load_config
from motet.experiment.loop.checkpoint import Checkpoint
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply
from motet.wire import deserialize, serialize

ROUNDS = 6
RUN = ["run", "toy-classification", f"rounds={ROUNDS}", "data.limit=300", "data.test_limit=40", "checkpoint.seconds=0"]
RUN += ["data.dev_share=0.1", "evaluation.best_round_metric=loss"]


def run_motet(*arguments: str) -> tuple[int, str]:
    """Run a command to its end, and return its exit status and errors."""
    process = MotetProcess(*arguments)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def pause_in_round(index: int) -> None:
    """Let this process wait in a round, when the first client has replied, until it is killed or interrupted.

    However slow the machine is, the run does not end before the test has stopped it.
    """
    take_reply = Mailbox._take_reply

    def take_and_pause(mailbox: Mailbox, state: Any, reply: Reply) -> None:
        take_reply(mailbox, state, reply)
        if mailbox.round == index and not state.exchange.address.startswith("evaluate"):
            time.sleep(3600)

    Mailbox._take_reply = take_and_pause  # type: ignore[method-assign]


def read_checkpoint(folder: Path) -> Checkpoint:
    checkpoint = deserialize(bytearray((folder / "checkpoint" / "state").read_bytes()))
    assert isinstance(checkpoint, Checkpoint)
    return checkpoint


def read_results(folder: Path) -> tuple[bytes, list[bytes], list[object]]:
    """Read the server's state, the client states and the scores, which must not depend on an interruption."""
    checkpoint = read_checkpoint(folder)
    states = folder / "checkpoint" / "client_states"
    client_states = [(states / name).read_bytes() for _, name in sorted(checkpoint.client_states.items())]
    summary = json.loads((folder / "summary.json").read_text())
    return serialize(checkpoint.progress), client_states, [summary["final"], summary["dev_best"]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run_motet(*RUN, "--out", str(folder)) == (0, "")
    return folder


def evaluated_rounds(folder: Path) -> list[int]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["round"] for r in rows if (r["name"], r["who"], r["split"]) == ("accuracy", "server", "global")]


def test_a_killed_run_resumes_to_the_same_result(uninterrupted: Path, tmp_path: Path) -> None:
    interrupted = tmp_path / "interrupted"
    process = MotetProcess(*RUN, "--out", str(interrupted), prepare=partial(pause_in_round, 3))
    wait_for_rounds(interrupted, 3, process)
    time.sleep(0.05)  # into the next round
    with pytest.raises(ConfigError, match=f"in use by process {process.pid}"):
        run_recipe(load_config(interrupted), interrupted, resume=True)
    with pytest.raises(ConfigError, match=f"in use by process {process.pid}"):
        run_recipe(load_config(interrupted), interrupted)
    process.kill()
    assert not (interrupted / "summary.json").exists()
    assert run_motet("resume", str(interrupted))[0] == 0
    assert read_results(interrupted) == read_results(uninterrupted)
    assert evaluated_rounds(interrupted) == list(range(1, ROUNDS + 1))  # none is missing, none is there twice


def test_a_killed_run_with_client_states_resumes_to_the_same_result(tmp_path: Path) -> None:
    settings = [*RUN, "algorithm.type=isolated", "evaluation.clients=2"]
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert run_motet(*settings, "--out", str(uninterrupted))[0] == 0
    process = MotetProcess(*settings, "--out", str(interrupted), prepare=partial(pause_in_round, 2))
    wait_for_rounds(interrupted, 2, process)
    time.sleep(0.1)
    process.kill()
    assert run_motet("resume", str(interrupted))[0] == 0
    assert read_results(interrupted) == read_results(uninterrupted)
    assert read_results(interrupted)[1], "isolated clients keep their models as state"


def test_ctrl_c_exits_with_130_prints_how_to_resume_and_loses_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    process = MotetProcess(*RUN, "checkpoint.seconds=1000", "--out", str(folder), prepare=partial(pause_in_round, 2))
    wait_for_rounds(folder, 2, process)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"motet resume {folder}" in errors
    assert "Traceback" not in errors
    assert read_checkpoint(folder).progress.rounds == 2
    assert run_motet("resume", str(folder))[0] == 0
    assert read_results(folder) == read_results(uninterrupted)
