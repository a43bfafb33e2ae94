"""motet bench, report, compare and replay as a user calls them, also after a crash."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from tests.motet_process import MotetProcess, wait_until

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
    rows: {FedAvg: {algorithm: fedavg}, FedOpt: {algorithm: fedopt}, isolated: {algorithm: isolated}}
    columns: {α=1: {}}
    claims: [FedOpt > FedAvg]
"""


def run_motet(*words: str, cwd: Path) -> tuple[int, str, str]:
    """Run a command in a folder. Return its exit status, its output and its errors."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr("sys.argv", ["motet", *words])
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()


def test_a_worker_uses_the_request_of_its_parent(folder: Path) -> None:
    """Another `motet bench` in the same folder may have replaced the stored request in the meantime."""
    request = BenchmarkRequest("small.yaml", 1, only=("methods/FedOpt",), device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        open_benchmark(request, Path("shared"))
        Path("shared/suite.yaml").rename(Path("shared") / suite_copy_name(1))
        Path("shared/other.yaml").write_text(SUITE.replace("rounds: 3", "rounds: 2"))
        other = BenchmarkRequest("shared/other.yaml", 1, only=("methods/isolated",), device="cpu")
        open_benchmark(other, Path("shared"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motet.benchmark.scheduler._exit_with_parent", lambda parent: None)  # it would end the tests
        status, _, err = run_motet(*request.cli_args(), "--out", "shared", "--worker-of", "1", cwd=folder)
    assert status == 0, err
    summaries = [json.loads(path.read_text()) for path in (folder / "shared").glob("runs/*/summary.json")]
    assert [(summary["algorithm"], summary["rounds"]) for summary in summaries] == [("fedopt", 3)]
    assert load_benchmark(folder / "shared").request == other, "a worker does not store its request"


def read_scores(out: Path) -> dict[str, list[float]]:
    results = json.loads((out / "results.json").read_text())
    return {row: cells["α=1"]["values"] for row, cells in results["tables"]["methods"]["cells"].items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench")
    (path / "small.yaml").write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Path:
    """A benchmark that ran in one process without interruption."""
    status, out, err = run_motet("bench", "small.yaml", "--seeds", "2", "--jobs", "1", "--out", "whole", cwd=folder)
    assert status == 0, err
    assert not list((folder / "whole").glob("suite-*"))
    assert "6 cells, 6 runs, 0 done" in out
    assert "[6/6]" in out
    assert "| FedOpt |" in out
    return folder / "whole"


def test_a_killed_benchmark_resumes_with_the_same_results(folder: Path, uninterrupted: Path) -> None:
    environment = {"PYTHONPATH": str(Path(motet.__file__).parents[1])}  # for the workers
    command = ["bench", "small.yaml", "--seeds", "2", "--jobs", "2", "--out", "cut"]
    process = MotetProcess(*command, folder=folder, environment=environment)
    out_folder = folder / "cut"
    wait_until(lambda: list(out_folder.glob("runs/*/summary.json")), process)
    process.kill()
    done = {p: p.stat().st_mtime_ns for p in out_folder.glob("runs/*/summary.json")}
    assert done
    status, out, err = run_motet("bench", "small.yaml", "--resume", "--jobs", "1", "--out", "cut", cwd=folder)
    assert status == 0, err
    assert re.search(r"[1-6] done", out)
    assert all(p.stat().st_mtime_ns == time_ns for p, time_ns in done.items()), "finished runs are not repeated"
    assert read_scores(out_folder) == read_scores(uninterrupted)
    assert not list(out_folder.glob("runs/*/checkpoint"))


def test_finished_runs_are_not_repeated(folder: Path, uninterrupted: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in uninterrupted.glob("runs/*/summary.json")}
    status, out, _ = run_motet("bench", "small.yaml", "--seeds", "2", "--out", "whole", cwd=folder)
    assert status == 0
    assert "6 runs, 6 done" in out
    assert {p: p.stat().st_mtime_ns for p in uninterrupted.glob("runs/*/summary.json")} == before


def test_a_dry_run_prints_the_time_and_trains_nothing(folder: Path) -> None:
    status, out, err = run_motet("bench", "small.yaml", "--dry-run", "--only", "FedOpt", "--out", "dry", cwd=folder)
    assert status == 0, err
    assert "5 cells, 5 runs" in out, "five seeds, as a verdict about methods needs"
    assert "About" in out
    assert not list((folder / "dry").glob("runs/*/summary.json"))


def test_a_failed_run_is_reported_and_does_not_stop_the_others(folder: Path) -> None:
    broken = SUITE.replace(
        "FedAvg: {algorithm: fedavg}", "FedAvg: {algorithm: fedavg, solver: {optimizer: sgd, lr: 1e30, clip: 0}}"
    )
    (folder / "broken.yaml").write_text(broken)
    status, out, err = run_motet("bench", "broken.yaml", "--seeds", "1", "--jobs", "1", "--out", "broken", cwd=folder)
    assert status == 1
    assert "1 cells have no result. The first is methods/FedAvg/α=1, seed 42" in err
    assert "lower solver.lr" in err
    assert "| FedAvg | – |" in out
    assert len(load_benchmark(folder / "broken").failures()) == 1


@pytest.fixture(scope="module")
def two_runs(folder: Path) -> None:
    """Runs in the folders one and two."""
    settings = ["data.limit=60", "data.test_limit=40", "rounds=3", "transport.workers=0"]
    for name, algorithm in (("one", "fedavg"), ("two", "fedopt")):
        words = ["run", "toy-classification", *settings, f"algorithm={algorithm}", "--out", name]
        assert run_motet(*words, cwd=folder)[0] == 0


@pytest.mark.usefixtures("two_runs")
def test_runs_are_reported_compared_and_replayed(folder: Path, uninterrupted: Path) -> None:
    status, out, err = run_motet("report", "whole", cwd=folder)
    assert status == 0, err
    assert (uninterrupted / "report.html").stat().st_size > 1_000_000
    status, out, err = run_motet("compare", "one", "two", cwd=folder)
    assert status == 0, err
    assert "algorithm.type" in out
    assert "over 40 examples" in out
    assert "about these trained models on new examples, not about the methods" in out
    status, out, err = run_motet("report", "one", "two", "--out", "both.html", cwd=folder)
    assert status == 0, err
    assert "one fedavg" in (folder / "both.html").read_text()
    before = (folder / "one" / "metrics.jsonl").read_bytes()
    status, out, err = run_motet("replay", "one", "--round", "2", "--client", "client-1", cwd=folder)
    assert status == 0, err
    assert "loss" in out
    assert "the 5 others" in out
    assert run_motet("export", "one", "--to", "model", cwd=folder)[0] == 0
    assert (folder / "one" / "metrics.jsonl").read_bytes() == before  # reading a run changes nothing


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "fednpl"], "Did you mean 'fednlp'"),
        (["bench", "fednlp", "--only", "nothing"], "no cell matches nothing"),
        (["report", "nowhere"], "'nowhere' does not exist"),
        (["compare", "nowhere", "nowhere"], "'nowhere' does not exist"),
        (["replay", "one", "--round", "9", "--client", "client-1"], "--round is 9; expected 1 to 3"),
        (["replay", "one", "--round", "1", "--client", "zoe"], "'zoe' was not in round 1"),
        (["run", "toy-classification", "track=[tensorbord]", "--out", "t"], "Did you mean 'tensorboard'"),
    ],
)
def test_a_mistake_is_explained(folder: Path, words: list[str], message: str) -> None:
    status, _, err = run_motet(*words, cwd=folder)
    assert message in err
    assert status == 2


def test_a_dry_run_fills_tables_with_the_finished_runs(folder: Path, uninterrupted: Path) -> None:
    (folder / "papers.md").write_text("<!-- motet bench small methods -->\n<!-- end -->\n")
    before = {p.name for p in uninterrupted.glob("runs/*")}
    words = ["bench", "small.yaml", "--seeds", "3", "--dry-run", "--into", "papers.md", "--out", "whole"]
    status, _, err = run_motet(*words, cwd=folder)
    assert status == 0, err
    assert "| FedOpt |" in (folder / "papers.md").read_text()
    assert {p.name for p in uninterrupted.glob("runs/*")} == before
