"""motet bench, report, compare and replay as a person uses them, also when the machine dies under them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import motet
from motet import cli
from motet.benchmark.benchmark_folder import BenchmarkRequest, load_benchmark, open_benchmark
from motet.benchmark.scheduler import suite_copy_name

SUITE = """
title: Small
base:
  rounds: 3
  data: {name: toy-classification, limit: 60, test_limit: 40}
  model: {name: tiny, max_tokens: 16, config: {hidden_size: 16, num_hidden_layers: 1, intermediate_size: 16}}
  partition: {type: label, clients: 3, alpha: 1.0}
  solver: {lr: 0.003, batch: 8, optimizer: adamw}
  checkpoint: {seconds: 0}
  transport: {workers: 0}
tables:
  methods:
    title: Methods
    rows: {FedAvg: {algorithm: fedavg}, FedOpt: {algorithm: fedopt}, alone: {algorithm: isolated}}
    columns: {α=1: {}}
    claims: [FedOpt > FedAvg]
"""


def finished(*words: str, cwd: Path) -> tuple[int, str, str]:
    """Status, output and errors of a command in that folder."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr("sys.argv", ["motet", *words])
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()


def test_a_helper_does_what_its_parent_was_asked_whoever_asks_something_else_meanwhile(place: Path) -> None:
    first = BenchmarkRequest("small.yaml", 1, only=("methods/FedOpt",), device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        open_benchmark(first, Path("asked"))
        Path("asked/suite.yaml").rename(Path("asked") / suite_copy_name(1))
        Path("asked/other.yaml").write_text(SUITE.replace("rounds: 3", "rounds: 2"))
        open_benchmark(BenchmarkRequest("asked/other.yaml", 1, only=("methods/alone",), device="cpu"), Path("asked"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "motet.benchmark.scheduler._end_with", lambda parent: None
        )  # it would end this process with its parent
        status, _, err = finished(*first.cli_args(), "--out", "asked", "--beside", "1", cwd=place)
    assert status == 0, err
    done = [json.loads(path.read_text()) for path in (place / "asked").glob("runs/*/summary.json")]
    assert [(summary["algorithm"], summary["rounds"]) for summary in done] == [("fedopt", 3)]
    assert load_benchmark(place / "asked").request.only == ("methods/alone",), "a helper writes nothing down"


def scores(folder: Path) -> dict[str, list[float]]:
    found = json.loads((folder / "results.json").read_text())
    return {row: cells["α=1"]["values"] for row, cells in found["tables"]["methods"]["cells"].items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "small.yaml").write_text(SUITE)
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """Never interrupted, in one process."""
    status, out, err = finished("bench", "small.yaml", "--seeds", "2", "--jobs", "1", "--out", "whole", cwd=place)
    assert status == 0, err
    assert not list((place / "whole").glob("suite-of-*"))
    assert "6 cells, 6 runs, 0 of them done" in out
    assert "[6/6]" in out
    assert "| FedOpt |" in out
    return place / "whole"


def test_a_benchmark_that_is_killed_goes_on_and_ends_the_same(place: Path, whole: Path) -> None:
    here = {**os.environ, "PYTHONPATH": str(Path(motet.__file__).parents[1])}  # wherever it is called from
    command = [sys.executable, "-m", "motet", "bench", "small.yaml", "--seeds", "2", "--jobs", "2", "--out", "cut"]
    process = subprocess.Popen(command, cwd=place, env=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    made, until = place / "cut", time.monotonic() + 200
    while not list(made.glob("runs/*/summary.json")) and time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    process.communicate()
    done = {p: p.stat().st_mtime_ns for p in made.glob("runs/*/summary.json")}
    assert done
    time.sleep(2)  # the helper ends with its parent
    status, out, err = finished("bench", "small.yaml", "--resume", "--jobs", "1", "--out", "cut", cwd=place)
    assert status == 0, err
    assert re.search(r"[1-6] of them done", out)
    assert all(p.stat().st_mtime_ns == when for p, when in done.items())  # what was done was not done again
    assert scores(made) == scores(whole)  # one process or two, killed or not: the same numbers
    assert not list(made.glob("runs/*/checkpoint"))


def test_what_is_done_is_not_done_again(place: Path, whole: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.glob("runs/*/summary.json")}
    status, out, _ = finished("bench", "small.yaml", "--seeds", "2", "--out", "whole", cwd=place)
    assert status == 0
    assert "6 runs, 6 of them done" in out
    assert {p: p.stat().st_mtime_ns for p in whole.glob("runs/*/summary.json")} == before


def test_a_dry_run_says_how_long_and_runs_nothing(place: Path) -> None:
    status, out, err = finished("bench", "small.yaml", "--dry-run", "--only", "FedOpt", "--out", "dry", cwd=place)
    assert status == 0, err
    assert "3 cells, 3 runs" in out
    assert "About" in out
    assert not list((place / "dry").glob("runs/*/summary.json"))


def test_a_run_that_fails_stops_nobody_else_and_is_said(place: Path) -> None:
    broken = SUITE.replace(
        "FedAvg: {algorithm: fedavg}", "FedAvg: {algorithm: fedavg, solver: {optimizer: sgd, lr: 1e30, clip: 0}}"
    )
    (place / "broken.yaml").write_text(broken)
    status, out, err = finished("bench", "broken.yaml", "--seeds", "1", "--jobs", "1", "--out", "broken", cwd=place)
    assert status == 1
    assert "1 cells have no run, the first being methods/FedAvg/α=1, seed 42" in err
    assert "lower solver.lr" in err
    assert "| FedAvg | – |" in out
    assert len(load_benchmark(place / "broken").failures()) == 1


@pytest.fixture(scope="module")
def pair(place: Path) -> None:
    """Two runs, called one and two."""
    settings = ["data.limit=60", "data.test_limit=40", "rounds=3", "transport.workers=0"]
    for name, algorithm in (("one", "fedavg"), ("two", "fedopt")):
        assert (
            finished("run", "toy-classification", *settings, f"algorithm={algorithm}", "--out", name, cwd=place)[0] == 0
        )


@pytest.mark.usefixtures("pair")
def test_runs_are_reported_compared_and_replayed(place: Path, whole: Path) -> None:
    status, out, err = finished("report", "whole", cwd=place)
    assert status == 0, err
    assert (whole / "report.html").stat().st_size > 1_000_000
    status, out, err = finished("compare", "one", "two", cwd=place)
    assert status == 0, err
    assert "algorithm.type" in out
    assert "over 40 test items" in out
    status, out, err = finished("report", "one", "two", "--out", "both.html", cwd=place)
    assert status == 0, err
    assert "one fedavg" in (place / "both.html").read_text()
    before = (place / "one" / "metrics.jsonl").read_bytes()
    status, out, err = finished("replay", "one", "--round", "2", "--client", "client-1", cwd=place)
    assert status == 0, err
    assert "loss" in out
    assert "the 5 others" in out
    assert finished("export", "one", "--to", "model", cwd=place)[0] == 0
    assert (place / "one" / "metrics.jsonl").read_bytes() == before  # looking changes nothing


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "fednpl"], "Did you mean 'fednlp'"),
        (["bench", "fednlp", "--only", "nothing"], "no cell is left by nothing"),
        (["report", "nowhere"], "is no run"),
        (["compare", "nowhere", "nowhere"], "is no run"),
        (["replay", "one", "--round", "9", "--client", "client-1"], "the run has rounds 1 to 3"),
        (["replay", "one", "--round", "1", "--client", "zoe"], "'zoe' took no part in round 1"),
        (["run", "toy-classification", "track=[tensorbord]", "--out", "t"], "Did you mean 'tensorboard'"),
    ],
)
def test_a_mistake_is_explained(place: Path, words: list[str], says: str) -> None:
    status, _, err = finished(*words, cwd=place)
    assert says in err
    assert status == 2


def test_tables_of_what_is_done_are_filled_in_without_running_the_rest(place: Path, whole: Path) -> None:
    (place / "papers.md").write_text("<!-- motet bench small methods -->\n<!-- end -->\n")
    before = {p.name for p in whole.glob("runs/*")}
    asked = ["bench", "small.yaml", "--seeds", "3", "--dry-run", "--into", "papers.md", "--out", "whole"]
    status, _, err = finished(*asked, cwd=place)
    assert status == 0, err
    assert "| FedOpt |" in (place / "papers.md").read_text()
    assert {p.name for p in whole.glob("runs/*")} == before
