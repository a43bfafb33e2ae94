"""How a benchmark executes its runs: claims, shared resources, time estimates, failures and progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console
from tests.benchmarks import SUITE, make_summary

from motet.benchmark.benchmark_folder import Benchmark, BenchmarkRequest
from motet.benchmark.cells import BenchmarkRun, build_cells, unique_runs
from motet.benchmark.run_store import RunStore
from motet.benchmark.scheduler import ProgressReporter, retry_alone, run_benchmark, run_pending, run_worker
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.suite import parse_suite
from motet.benchmark.time_estimate import ProbeResult, TimeEstimate, _estimate_run, estimate_time
from motet.core.errors import ConfigError
from motet.experiment.recipe.run_config import CohortConfig, ComponentConfig, ModelConfig, RunConfig
from motet.learning.executors import memory_budget
from motet.learning.executors.memory_budget import DeviceMemoryError, limit_device_memory
from motet.report.benchmark_progress import BenchmarkLineProgress
from motet.transport.json_files import write_json

SUMMARY = make_summary(seconds=20.0, final={"accuracy": 0.5})


def test_a_run_is_claimed_by_one_process_and_executed_once(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.claim("x") as first, store.claim("x") as second:
        assert (first, second) == (True, False)
    store.record_failure("x", "reason")
    with store.claim("x") as is_claimed:
        assert not is_claimed, "a failed run is not repeated"
    store.clear_failures(["x"])
    with store.claim("x") as is_claimed:
        assert is_claimed


def test_runs_on_the_same_data_share_corpus_and_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.benchmark import shared_resources

    reads: list[Any] = []
    read_corpus = shared_resources.read_corpus
    monkeypatch.setattr(shared_resources, "read_corpus", lambda *args: reads.append(args) or read_corpus(*args))
    runs = list(unique_runs(build_cells(parse_suite("two", SUITE), [42, 43], device="cpu")).values())
    same_data = [r for r in runs if r.config.seed == 42 and r.config.partition.options.get("alpha") == 1.0]
    with SharedResources() as resources:
        first, second = (resources.federation(run) for run in same_data)
        assert first is second
        assert resources.federation(next(r for r in runs if r.config.seed == 43)) is not first
    assert len(reads) == 1


def test_an_estimate_is_corrected_by_the_time_of_finished_runs() -> None:
    estimate = TimeEstimate({"a": 10.0, "b": 10.0, "c": 20.0}, jobs=2)
    assert estimate.seconds_left(["a", "b", "c"]) == 20.0
    estimate.record("a", 30.0)
    assert estimate.seconds_left(["b", "c"]) == 45.0


def test_finished_runs_correct_the_estimate_of_others_with_the_same_data_and_model(tmp_path: Path) -> None:
    first, second, *_ = build_cells(parse_suite("two", SUITE), [42], only=["methods/*/α=1"], device="cpu")
    other = replace(first.run, config=replace(first.run.config, model=ModelConfig("another")))
    with SharedResources() as resources:
        runs = {second.run.name: second.run}
        before = estimate_time(runs, resources, 1)
        estimate = estimate_time(runs, resources, 1, finished=[(first.run, 1e6), (other, 1.0)])
    assert first.run.name in estimate.actual_seconds and len(estimate.actual_seconds) == 1
    ratio = estimate.seconds_left(runs) / (1e6 * estimate.seconds[second.run.name] / estimate.seconds[first.run.name])
    assert ratio == pytest.approx(1.0) and before.seconds_left(runs) < 1e5


def test_an_estimate_counts_the_clients_of_a_natural_partition() -> None:
    """Two clients train per round. With more clients, each has less data."""
    cell = build_cells(parse_suite("two", SUITE), [42], only=["methods/FedAvg/α=1"], device="cpu")[0]
    config = replace(cell.run.config, partition=ComponentConfig("natural"), cohort=CohortConfig(size=2))

    def training_seconds(clients: int) -> float:
        probe = ProbeResult(
            step_seconds=1.0, memory_bytes=0, train_examples=32_000, evaluation_examples=0, clients=clients
        )
        return _estimate_run(config, probe) - 1

    assert training_seconds(10) == 10 * training_seconds(100)


def test_a_method_that_does_not_fit_the_model_is_reported_before_the_first_run() -> None:
    rows = {"FedAvg": {"algorithm": "fedavg"}, "Split": {"algorithm": {"type": "fedsplit", "c": 1}}}
    tables = {"t": {"title": "T", "columns": {"x": {}}, "rows": rows}}
    suite = parse_suite("split", yaml.safe_dump({**yaml.safe_load(SUITE), "tables": tables}))
    runs = unique_runs(build_cells(suite, [42], device="cpu"))
    with SharedResources() as resources, pytest.raises(ConfigError, match=r"^split/t/Split/x: .*embeddings"):
        estimate_time(runs, resources, 1)


@pytest.mark.parametrize(
    ("shows", "message"),
    [
        ("accuray", r"^two/methods/FedAvg/α=1: shows: 'accuray': this task has .*Did you mean 'accuracy'"),
        ("accuray after 1", "Did you mean 'accuracy'"),
        ("accuracy after 3", r"the run has 2 rounds and is evaluated every 1"),
    ],
)
def test_a_metric_that_a_run_will_not_have_is_reported_before_the_first_run(
    shows: str, message: str, tmp_path: Path
) -> None:
    suite = parse_suite("two", SUITE.replace("α=1: {}, α=9", f"α=1: {{shows: {shows}}}, α=9"))
    request = BenchmarkRequest("two", seeds=1, only=("methods/FedAvg/α=1",), device="cpu")
    benchmark = Benchmark(tmp_path, request, suite)
    with SharedResources() as resources, pytest.raises(ConfigError, match=message):
        estimate_time(benchmark.runs, resources, 1, benchmark.metrics)


def test_a_crash_in_one_run_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executors: list[tuple[str, Any]] = []

    def crash_in_fedopt(plan: Any, config: RunConfig, federation: Any, folder: Path, executor: Any, **_: Any) -> Any:
        executors.append((config.algorithm.type, executor))
        if config.algorithm.type == "fedopt":
            raise RuntimeError("two devices")
        write_json(folder / "summary.json", SUMMARY)

    monkeypatch.setattr("motet.benchmark.scheduler.run_experiment", crash_in_fedopt)
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/*/α=1"], device="cpu"))
    store = RunStore(tmp_path)
    with SharedResources() as resources:
        run_pending(runs, store, resources, BenchmarkLineProgress(Console(quiet=True)))
    assert {path.parent.name for path in tmp_path.rglob("version.json")} == set(runs), "any folder of a run has it"
    reasons = {run.config.algorithm.type: store.failure(name) for name, run in runs.items()}
    assert reasons["fedavg"] is None and reasons["centralized"] is None
    assert reasons["fedopt"] is not None and "RuntimeError: two devices" in reasons["fedopt"]
    (traceback,) = tmp_path.rglob("traceback.txt")
    assert "in crash_in_fedopt" in traceback.read_text("utf-8")
    crash = [algorithm for algorithm, _ in executors].index("fedopt")
    assert 0 < crash < len(executors) - 1
    before, during, after = (executor for _, executor in executors[crash - 1 : crash + 2])
    assert before is during
    assert during is not after, "the executor may still hold jobs of the crashed run"


@pytest.mark.parametrize("error", [DeviceMemoryError("no client fits"), torch.OutOfMemoryError("no byte is left")])
def test_a_run_that_did_not_fit_beside_others_runs_again_with_the_whole_memory(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_if_alone(plan: Any, config: RunConfig, federation: Any, folder: Path, *_: Any, **__: Any) -> Any:
        if config.algorithm.type == "fedopt" and memory_budget._FRACTIONS["cpu"] < 1:
            raise error
        write_json(folder / "summary.json", SUMMARY)

    monkeypatch.setattr(memory_budget, "_FRACTIONS", {})
    monkeypatch.setattr("motet.benchmark.scheduler.run_experiment", run_if_alone)
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/*/α=1"], device="cpu"))
    store, callback = RunStore(tmp_path), BenchmarkLineProgress(Console(quiet=True))
    estimate = TimeEstimate(dict.fromkeys(runs, 10.0), jobs=2)
    limit_device_memory(torch.device("cpu"), 0.5)
    with SharedResources() as resources:
        run_benchmark(runs, store, resources, estimate, callback)
        crowded = {name: run for name, run in runs.items() if store.lacked_memory(name)}
        assert {run.config.algorithm.type for run in crowded.values()} == {"fedopt"}
        retry_alone(crowded, store, resources, estimate, callback)
    assert all(store.is_done(name) and not store.lacked_memory(name) for name in runs)


def test_a_worker_waits_for_the_trials_of_others_before_it_runs_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search decides which runs the tables need. The worker keeps what it has loaded."""
    executed: list[str] = []

    def finish(plan: Any, config: RunConfig, federation: Any, folder: Path, *_: Any, **__: Any) -> None:
        executed.append(config.algorithm.type)
        write_json(folder / "summary.json", SUMMARY)

    monkeypatch.setattr("motet.benchmark.scheduler.run_experiment", finish)
    monkeypatch.setattr("motet.benchmark.scheduler._exit_with_parent", lambda parent: None)  # it would end the tests
    suite, store = parse_suite("two", SUITE), RunStore(tmp_path)
    trials, runs = (unique_runs(build_cells(suite, [seed], only=["methods/*/α=1"], device="cpu")) for seed in (1, 42))
    claimed_elsewhere = next(iter(trials))

    def end_the_other_run(seconds: float) -> None:
        assert len(executed) == len(trials) - 1
        write_json(store.run_folder(claimed_elsewhere) / "summary.json", SUMMARY)

    monkeypatch.setattr("motet.benchmark.scheduler.time.sleep", end_the_other_run)
    with store.claim(claimed_elsewhere):
        run_worker([(trials, store), (runs, store)], BenchmarkLineProgress(Console(quiet=True)), parent=1)
    assert len(executed) == len(trials) - 1 + len(runs)


def test_a_process_starts_on_data_that_no_other_process_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[BenchmarkRun] = []

    def finish(run: BenchmarkRun, store: RunStore, *_: Any) -> None:
        executed.append(run)
        write_json(store.run_folder(run.name) / "summary.json", SUMMARY)

    monkeypatch.setattr("motet.benchmark.scheduler._execute", finish)
    store, runs = RunStore(tmp_path), unique_runs(build_cells(parse_suite("two", SUITE), [42, 43], device="cpu"))
    data_keys = list(dict.fromkeys(run.data_key for run in runs.values()))
    with store.claim(next(iter(runs))), SharedResources() as resources:
        run_pending(runs, store, resources, BenchmarkLineProgress(Console(quiet=True)))
    order = list(dict.fromkeys(run.data_key for run in executed))
    assert order == [*data_keys[1:], data_keys[0]]
    assert len(executed) == len(runs) - 1


def test_a_process_that_waits_for_others_asks_only_about_open_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks twice a second, and a benchmark may have hundreds of finished runs."""
    store, runs = RunStore(tmp_path), unique_runs(build_cells(parse_suite("two", SUITE), [42, 43], device="cpu"))
    claimed_elsewhere, *finished = runs
    for name in finished:
        with store.claim(name):
            write_json(store.run_folder(name) / "summary.json", SUMMARY)
    questions: list[str] = []
    is_claimed = RunStore.is_claimed
    monkeypatch.setattr(RunStore, "is_claimed", lambda self, name: questions.append(name) or is_claimed(self, name))
    with store.claim(claimed_elsewhere), SharedResources() as resources:
        run_pending(runs, store, resources, BenchmarkLineProgress(Console(quiet=True)))
    assert questions == [claimed_elsewhere]


def test_each_run_that_ends_is_reported_once(tmp_path: Path) -> None:
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/*"], device="cpu"))
    earlier, first, second, third = list(runs)[:4]
    runs = {name: runs[name] for name in (earlier, first, second, third)}
    store, console = RunStore(tmp_path), Console(record=True, width=120)
    callback = BenchmarkLineProgress(console)
    for name in (earlier, first, second):
        store.run_folder(name).mkdir(parents=True)
    write_json(store.run_folder(earlier) / "summary.json", SUMMARY)
    estimate = TimeEstimate(dict.fromkeys(runs, 10.0), jobs=1)
    estimate.record(earlier, 20.0)
    callback.on_benchmark_begin(len(runs), 1)
    reporter = ProgressReporter(runs, store, estimate, callback)
    write_json(store.run_folder(first) / "summary.json", SUMMARY)
    store.record_failure(second, "no memory")
    reporter.report()
    reporter.report()
    lines = console.export_text().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("[2/4]") and "accuracy 0.500, 20 s; 20 s left" in lines[0], (
        "the third run is expected to take 20 s, as the first did"
    )
    assert "FAILED: no memory" in lines[1]


def test_checkpoints_that_a_killed_process_left_are_deleted(tmp_path: Path) -> None:
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/FedAvg/α=1"], device="cpu"))
    (name,) = runs
    store = RunStore(tmp_path)
    (store.run_folder(name) / "checkpoint").mkdir(parents=True)
    write_json(store.run_folder(name) / "summary.json", SUMMARY)
    with SharedResources() as resources:
        callback = BenchmarkLineProgress(Console(quiet=True))
        run_benchmark(runs, store, resources, TimeEstimate({}, jobs=1), callback)
    assert not (store.run_folder(name) / "checkpoint").exists()
