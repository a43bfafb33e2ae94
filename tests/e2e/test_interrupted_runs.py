"""Kill a run at any moment; it goes on and ends as if nothing had happened."""

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
    raise AssertionError(f"round {rounds} never came")


def left_behind(folder: Path) -> tuple[bytes, list[bytes], list[object]]:
    """The server's state, the clients' memories, the result: all that must not depend on an interruption."""
    found = deserialize(bytearray((folder / "checkpoint" / "state").read_bytes()))
    assert isinstance(found, Checkpoint)
    memories = [(folder / "checkpoint" / "memories" / name).read_bytes() for _, name in sorted(found.memories.items())]
    summary = json.loads((folder / "summary.json").read_text())
    return serialize((found.state, found.traffic)), memories, [summary["final"], summary["dev_best"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert finished(*RUN, "--out", str(folder)) == (0, "")
    return folder


def rounds_seen(folder: Path) -> list[int]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["round"] for r in rows if (r["name"], r["who"], r["split"]) == ("accuracy", "server", "global")]


def test_a_killed_run_goes_on_to_the_same_end(whole: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    process = motet(*RUN, "--out", str(cut))
    wait_for_rounds(cut, 3, process)
    time.sleep(0.05)  # into the next round
    process.kill()
    process.communicate()
    assert not (cut / "summary.json").exists()
    assert finished("resume", str(cut))[0] == 0
    assert left_behind(cut) == left_behind(whole)
    assert rounds_seen(cut) == list(range(1, ROUNDS + 1))  # no round is missing, none is there twice


def test_a_run_whose_clients_remember_goes_on_to_the_same_end(tmp_path: Path) -> None:
    alone = [*RUN, "algorithm.type=isolated", "evaluation.clients=2"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert finished(*alone, "--out", str(whole))[0] == 0
    process = motet(*alone, "--out", str(cut))
    wait_for_rounds(cut, 2, process)
    time.sleep(0.1)
    process.kill()
    process.communicate()
    assert finished("resume", str(cut))[0] == 0
    assert left_behind(cut) == left_behind(whole)
    assert left_behind(cut)[1], "clients that train alone remember their models"


def test_ctrl_c_ends_with_130_says_how_to_go_on_and_loses_nothing(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    process = motet(*RUN, "checkpoint.seconds=1000", "--out", str(folder))
    wait_for_rounds(folder, 2, process)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"motet resume {folder}" in err
    assert "Traceback" not in err
    found = deserialize(bytearray((folder / "checkpoint" / "state").read_bytes()))
    assert isinstance(found, Checkpoint)
    assert 2 <= found.rounds < ROUNDS
    assert finished("resume", str(folder))[0] == 0
    assert left_behind(folder) == left_behind(whole)
