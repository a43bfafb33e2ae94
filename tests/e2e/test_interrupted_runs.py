"""A run that is killed at any moment resumes and ends as if it had not been interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from motet.experiment.loop.checkpoint import Checkpoint
from motet.wire import deserialize, serialize

ROUNDS = 6
RUN = ["run", "toy-classification", f"rounds={ROUNDS}", "data.limit=300", "data.test_limit=40", "checkpoint.seconds=0"]
RUN += ["data.dev_share=0.1", "evaluation.best_round_metric=loss"]


def motet(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "motet", *words]
    hears = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - a background job is born deaf to Ctrl-C
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears)  # noqa: PLW1509


def finished(*words: str) -> tuple[int, str]:
    process = motet(*words)
    _, err = process.communicate(timeout=300)
    return process.returncode, err


def wait_for_rounds(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        path = folder / "metrics.jsonl"
        if path.exists() and f'"round": {rounds},' in path.read_text():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"round {rounds} did not finish in time")


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
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert finished(*RUN, "--out", str(folder)) == (0, "")
    return folder


def evaluated_rounds(folder: Path) -> list[int]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["round"] for r in rows if (r["name"], r["who"], r["split"]) == ("accuracy", "server", "global")]


def test_a_killed_run_resumes_to_the_same_result(whole: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    process = motet(*RUN, "--out", str(cut))
    wait_for_rounds(cut, 3, process)
    time.sleep(0.05)  # into the next round
    process.kill()
    process.communicate()
    assert not (cut / "summary.json").exists()
    assert finished("resume", str(cut))[0] == 0
    assert read_results(cut) == read_results(whole)
    assert evaluated_rounds(cut) == list(range(1, ROUNDS + 1))  # none is missing, none is there twice


def test_a_killed_run_with_client_states_resumes_to_the_same_result(tmp_path: Path) -> None:
    alone = [*RUN, "algorithm.type=isolated", "evaluation.clients=2"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert finished(*alone, "--out", str(whole))[0] == 0
    process = motet(*alone, "--out", str(cut))
    wait_for_rounds(cut, 2, process)
    time.sleep(0.1)
    process.kill()
    process.communicate()
    assert finished("resume", str(cut))[0] == 0
    assert read_results(cut) == read_results(whole)
    assert read_results(cut)[1], "isolated clients keep their models as state"


def test_ctrl_c_exits_with_130_prints_how_to_resume_and_loses_nothing(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    process = motet(*RUN, "checkpoint.seconds=1000", "--out", str(folder))
    wait_for_rounds(folder, 2, process)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"motet resume {folder}" in err
    assert "Traceback" not in err
    assert 2 <= read_checkpoint(folder).progress.rounds < ROUNDS
    assert finished("resume", str(folder))[0] == 0
    assert read_results(folder) == read_results(whole)
