"""Execute the runs of a benchmark on shared data, in one process or several. Finished runs are never repeated."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from motet.benchmark.cells import BenchmarkRun, without_worker_processes
from motet.benchmark.run_store import TRACEBACK_FILE, RunStore
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.time_estimate import TimeEstimate
from motet.core.errors import MotetError
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.commands.recipe_runner import prepare_plan, run_experiment
from motet.experiment.commands.run_folder import create_run_folder
from motet.learning.executors.memory_budget import DeviceMemoryError, limit_device_memory
from motet.learning.executors.process_executor import default_worker_count
from motet.report.benchmark_progress import BenchmarkCallback
from motet.report.significance import MIN_SEEDS
from motet.transport.private_files import write_atomically

POLL_SECONDS = 0.5
_MAX_OPEN_FEDERATIONS = MIN_SEEDS  # a column of a table has one for each seed


def suite_copy_name(process_id: int) -> str:
    """Return the name of the suite copy that a process and its workers use.

    The suite.yaml of the folder may be replaced by another `motet bench` in the meantime.
    """
    return f"suite-{process_id}.yaml"


class BenchmarkWorkers:
    """Worker processes that execute the searches and the runs of the same benchmark. They end when the context exits."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.suite_copy = folder / suite_copy_name(os.getpid())

    def __enter__(self) -> Self:
        write_atomically(self.suite_copy, (self.folder / "suite.yaml").read_bytes())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.suite_copy.unlink(missing_ok=True)

    def stop(self) -> None:
        """End all workers, which frees their memory. `start` can start others."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def start(self, jobs: int) -> None:
        """Start workers until, together with this process, there are `jobs` processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while len(self.processes) < jobs - 1:
            command = [sys.executable, "-m", "motet", *self.command, "--jobs", str(jobs)]
            with (self.folder / f"worker-{len(self.processes) + 1}.log").open("ab") as log:
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))


def run_benchmark(
    runs: Mapping[str, BenchmarkRun],
    store: RunStore,
    resources: SharedResources,
    estimate: TimeEstimate,
    callback: BenchmarkCallback,
) -> None:
    """Execute runs until each is done or has failed, here or in a worker."""
    for name in filter(store.is_done, runs):
        store.clean_up(name)  # a process that was killed right after a run may have left its checkpoint
    callback.on_benchmark_begin(len(runs), store.count_done(runs))
    reporter = ProgressReporter(runs, store, estimate, callback)
    try:
        run_pending(runs, store, resources, callback, reporter, use_worker_processes=estimate.jobs == 1)
        while not all(store.is_settled(name) for name in runs):
            time.sleep(POLL_SECONDS)
            reporter.report()
            # If a worker died, its runs are free to be claimed.
            run_pending(runs, store, resources, callback, reporter, use_worker_processes=False)
        reporter.report()
    finally:
        callback.on_benchmark_end()


def retry_alone(
    runs: Mapping[str, BenchmarkRun],
    store: RunStore,
    resources: SharedResources,
    estimate: TimeEstimate,
    callback: BenchmarkCallback,
    memory_share: float = 1.0,
) -> None:
    """Repeat runs that ran out of memory beside others, one at a time and with all memory. No worker may run."""
    resources.close_executor()
    for device in {run.config.device for run in runs.values()}:
        split_resources(device, jobs=1, memory_share=memory_share)
    store.clear_failures(runs)
    run_benchmark(runs, store, resources, replace(estimate, jobs=1), callback)


class ProgressReporter:
    """Reports each run that ends, whichever process executed it."""

    def __init__(
        self,
        runs: Mapping[str, BenchmarkRun],
        store: RunStore,
        estimate: TimeEstimate,
        callback: BenchmarkCallback,
    ) -> None:
        self.runs, self.store, self.estimate, self.callback = runs, store, estimate, callback
        self.reported = set(runs) - (set(estimate.seconds) - set(estimate.actual_seconds))  # they were settled before

    def report(self) -> None:
        ended = [name for name in self.runs if name not in self.reported and self.store.is_settled(name)]
        self.reported.update(ended)
        messages = [self._describe(name) for name in ended] or [""]
        seconds_left = self.estimate.seconds_left([name for name in self.runs if name not in self.reported])
        for message in messages:
            self.callback.on_progress(self.store.count_done(self.runs), seconds_left, message)

    def _describe(self, name: str) -> str:
        run, summary = self.runs[name], self.store.summary(name)
        label = f"{run.config.recipe.partition('/')[2]}, seed {run.config.seed}"
        if summary is None:
            return f"{label}: FAILED: {self.store.failure(name)}"
        self.estimate.record(name, summary["seconds"])
        return f"{label}: {_describe_score(summary)}, {summary['seconds']:.0f} s"


def _describe_score(summary: Mapping[str, Any]) -> str:
    """Return the score on the development set, if there is one: who watches a search must not choose by the test set."""
    if best := summary.get("dev_best"):
        return f"{best['by']} {best['dev'][best['by']]:.3f} on dev"
    metric = summary["primary_metric"]
    return f"{metric} {summary['final'].get(metric, float('nan')):.3f}"


def split_resources(device: str, jobs: int, memory_share: float = 1.0) -> None:
    """Limit this process to its part of the cores and of the memory, if several jobs run at the same time.

    `memory_share` is the share of the memory that all jobs of this benchmark may use; other benchmarks use the rest.
    """
    if jobs > 1:
        # More threads than cores would slow down all jobs.
        torch.set_num_threads(max(1, default_worker_count() // jobs))
    for shared_device in {resolve_device(device), torch.device("cpu")}:
        limit_device_memory(shared_device, memory_share * (0.95 / jobs if jobs > 1 else 1.0))


def run_pending(
    runs: Mapping[str, BenchmarkRun],
    store: RunStore,
    resources: SharedResources,
    callback: BenchmarkCallback,
    reporter: ProgressReporter | None = None,
    use_worker_processes: bool = True,
) -> None:
    """Execute every run that no other process has claimed. Runs on the data that is already loaded come first."""
    loaded_data = ""
    open_runs = {name: run for name, run in runs.items() if not store.is_settled(name)}
    pending = dict(open_runs)
    while pending:
        name = _choose_next(pending, open_runs, store, loaded_data)
        run = pending.pop(name)
        if store.is_settled(name):
            continue
        with store.claim(name) as is_claimed:
            if not is_claimed:
                continue
            loaded_data = run.data_key
            _execute(run if use_worker_processes else without_worker_processes(run), store, resources, callback)
        if reporter is not None:
            reporter.report()


def _choose_next(
    pending: Mapping[str, BenchmarkRun], open_runs: Mapping[str, BenchmarkRun], store: RunStore, loaded_data: str
) -> str:
    """Return a pending run on the loaded data, else on the data that the fewest processes have loaded.

    Then each process tokenizes few federations and captures few steps. Processes spread over a few federations only, so
    that the first columns of an interrupted benchmark are complete.
    """
    for name, run in pending.items():
        if run.data_key == loaded_data:
            return name
    open_data = list(dict.fromkeys(run.data_key for name, run in pending.items() if not store.is_settled(name)))
    users = Counter(run.data_key for name, run in open_runs.items() if store.is_claimed(name))
    least_used = min(open_data[:_MAX_OPEN_FEDERATIONS], key=users.__getitem__, default="")
    return next((name for name, run in pending.items() if run.data_key == least_used), next(iter(pending)))


def _execute(run: BenchmarkRun, store: RunStore, resources: SharedResources, callback: BenchmarkCallback) -> None:
    """Start or resume a run. A failure is recorded and does not stop the other runs."""
    folder = store.run_folder(run.name)
    create_run_folder(folder, {"": run.config})
    try:
        federation, executor = resources.federation(run), resources.executor(run)
        run_experiment(
            prepare_plan(run.config, federation),
            run.config,
            federation,
            folder,
            executor,
            resume=True,
            callback=callback,
            save_model=False,
        )
        store.clean_up(run.name)
        return
    except MotetError as error:
        reason, lacked_memory = str(error), isinstance(error, DeviceMemoryError)
    except Exception as error:  # a bug that one run triggers must not end the others
        reason = f"(traceback in {folder / TRACEBACK_FILE}) {type(error).__name__}: {error}"
        lacked_memory = isinstance(error, torch.OutOfMemoryError)
        (folder / TRACEBACK_FILE).write_text(traceback.format_exc(), "utf-8")
    store.record_failure(run.name, reason, lacked_memory)
    resources.close_executor()  # it may still hold jobs of the failed run


def run_worker(
    phases: Iterable[tuple[Mapping[str, BenchmarkRun], RunStore]], callback: BenchmarkCallback, parent: int
) -> None:
    """Execute the runs of one phase after the other in a worker process.

    A phase begins when all runs of the one before are settled, wherever they were executed. The worker ends with its
    parent, even if the parent is killed.
    """
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    with SharedResources() as resources:
        for runs, store in phases:
            run_pending(runs, store, resources, callback, use_worker_processes=False)
            while not all(store.is_settled(name) for name in runs):
                time.sleep(POLL_SECONDS)
                run_pending(runs, store, resources, callback, use_worker_processes=False)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)  # safe at any moment: finished runs are on disk, and the others resume from their checkpoints
