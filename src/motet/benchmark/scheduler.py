"""Carry out a grid: one run after another on shared data, several processes side by side; what is done stays done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import torch
import yaml

from motet.benchmark.cells import BenchmarkRun, without_worker_processes
from motet.benchmark.run_store import TRACEBACK_FILE, RunStore
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.time_estimate import TimeEstimate
from motet.core.errors import MotetError
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.commands.run_folder import run_experiment
from motet.learning.executors.memory_budget import limit_device_memory
from motet.learning.executors.process_executor import default_worker_count
from motet.report.benchmark_progress import BenchmarkCallback
from motet.transport.spill_store import write_atomically


def suite_copy_name(process: int) -> str:
    """The file with the suite that a process and its helpers go by: the folder's own may become another's meanwhile."""
    return f"suite-of-{process}.yaml"


class BenchmarkWorkers:
    """Processes that take runs of the same grid; they end when this is left."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        self.beside: list[subprocess.Popen[bytes]] = []
        self.suite = folder / suite_copy_name(os.getpid())

    def __enter__(self) -> Self:
        write_atomically(self.suite, (self.folder / "suite.yaml").read_bytes())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.beside:
            process.terminate()
        for process in self.beside:
            process.wait()
        self.suite.unlink(missing_ok=True)

    def join(self, jobs: int) -> None:
        """As many as make, with this process, so many jobs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while len(self.beside) < jobs - 1:
            command = [sys.executable, "-m", "motet", *self.command, "--jobs", str(jobs)]
            with (self.folder / f"beside-{len(self.beside) + 1}.log").open("ab") as log:
                self.beside.append(subprocess.Popen(command, stdout=log, stderr=log))


def run_benchmark(
    runs: Mapping[str, BenchmarkRun],
    store: RunStore,
    stock: SharedResources,
    estimate: TimeEstimate,
    callback: BenchmarkCallback,
) -> None:
    """Until every run is done or has failed, by us or by those who help."""
    callback.on_benchmark_begin(len(runs), store.count(runs))
    reporter = ProgressReporter(runs, store, estimate, callback)
    try:
        run_pending(runs, store, stock, callback, reporter, alone=estimate.jobs == 1)
        while not all(store.is_settled(name) for name in runs):
            time.sleep(0.5)  # in the hands of the others; if one of them dies, its run is ours
            reporter.report()
            run_pending(runs, store, stock, callback, reporter, alone=False)
        reporter.report()
    finally:
        callback.on_benchmark_end()


class ProgressReporter:
    """Says of each run that ends how it ended, whoever carried it out."""

    def __init__(
        self, runs: Mapping[str, BenchmarkRun], store: RunStore, estimate: TimeEstimate, callback: BenchmarkCallback
    ) -> None:
        self.runs, self.store, self.estimate, self.callback = runs, store, estimate, callback
        self.known = set(runs) - set(estimate.seconds)  # those that were done before; others may have ended since

    def report(self) -> None:
        ended = [name for name in self.runs if name not in self.known and self.store.is_settled(name)]
        self.known.update(ended)
        lines = [self._said(name) for name in ended] or [""]
        left = self.estimate.seconds_left([name for name in self.runs if name not in self.known])
        for said in lines:
            self.callback.on_progress(self.store.count(self.runs), left, said)

    def _said(self, name: str) -> str:
        run, summary = self.runs[name], self.store.summary(name)
        label = f"{run.config.recipe.partition('/')[2]}, seed {run.config.seed}"
        if summary is None:
            return f"{label}: FAILED: {self.store.failure(name)}"
        primary_metric = summary["headline"]
        self.estimate.record(name, summary["seconds"])
        return f"{label}: {primary_metric} {summary['final'].get(primary_metric, float('nan')):.3f}, {summary['seconds']:.0f} s"


def split_resources(device: str, jobs: int) -> None:
    """Where several runs stand side by side, each has its part of the cores, and plans with its part of a GPU's memory."""
    if jobs > 1:
        torch.set_num_threads(
            max(1, default_worker_count() // jobs)
        )  # threads that wait for a core keep others from it
        for shared in {resolve_device(device), torch.device("cpu")}:
            limit_device_memory(shared, 0.95 / jobs)


def run_pending(
    runs: Mapping[str, BenchmarkRun],
    store: RunStore,
    stock: SharedResources,
    callback: BenchmarkCallback,
    reporter: ProgressReporter | None = None,
    alone: bool = True,
) -> None:
    """All runs that nobody else has claimed; those on the data at hand first."""
    at_hand = ""
    waiting = dict(runs)
    while waiting:
        name = next((n for n, run in waiting.items() if run.data_key == at_hand), next(iter(waiting)))
        run = waiting.pop(name)
        if store.is_settled(name):
            continue
        with store.claim(name) as ours:
            if not ours:
                continue
            at_hand = run.data_key
            _one(run if alone else without_worker_processes(run), store, stock, callback)
        if reporter is not None:
            reporter.report()


def _one(run: BenchmarkRun, store: RunStore, stock: SharedResources, callback: BenchmarkCallback) -> None:
    """Begin a run, or go on with it; a run that fails is written down and stops nobody else."""
    place = store.run_folder(run.name)
    write_atomically(
        place / "config.yaml", yaml.safe_dump(run.config.to_dict(), sort_keys=False, allow_unicode=True).encode()
    )
    try:
        federation, executor = stock.federation(run), stock.executor(run)
        run_experiment(run.config, place, federation, executor, resume=True, callback=callback, keep_model=False)
        store.clean_up(run.name)
        return
    except MotetError as error:
        why = str(error)
    except (
        Exception
    ) as error:  # a fault of ours in one run does not end the others; where it happened is kept with the run
        why = f"(traceback in {place / TRACEBACK_FILE}) {type(error).__name__}: {error}"
        (place / TRACEBACK_FILE).write_text(traceback.format_exc(), "utf-8")
    store.record_failure(run.name, why)
    stock.close_executor()  # jobs of the run may still be waiting there


def run_worker(runs: Mapping[str, BenchmarkRun], store: RunStore, callback: BenchmarkCallback, parent: int) -> None:
    """What a helping process does; it ends with the process that began it, even if that is killed."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with SharedResources() as stock:
        run_pending(runs, store, stock, callback, alone=False)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # at any moment: what is finished is kept, and the rest is begun again from its checkpoint
