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

from motet.benchmark.cells import Run, inside
from motet.benchmark.run_store import TRACE, Store
from motet.benchmark.shared_resources import Stock
from motet.benchmark.time_estimate import Estimate
from motet.core.errors import MotetError
from motet.experiment.build.builders import device_of
from motet.experiment.commands.run_folder import carried_out
from motet.learning.executors.memory_budget import limit_device_memory
from motet.learning.executors.process_executor import default_count
from motet.report.benchmark_progress import GridWatch
from motet.transport.spill_store import write_atomically


def copy_of(process: int) -> str:
    """The file with the suite that a process and its helpers go by: the folder's own may become another's meanwhile."""
    return f"suite-of-{process}.yaml"


class Crew:
    """Processes that take runs of the same grid; they end when this is left."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        self.beside: list[subprocess.Popen[bytes]] = []
        self.suite = folder / copy_of(os.getpid())

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


def perform(runs: Mapping[str, Run], store: Store, stock: Stock, estimate: Estimate, watch: GridWatch) -> None:
    """Until every run is done or has failed, by us or by those who help."""
    watch.open(len(runs), store.count(runs))
    news = News(runs, store, estimate, watch)
    try:
        carry_out(runs, store, stock, watch, news, alone=estimate.jobs == 1)
        while not all(store.settled(name) for name in runs):
            time.sleep(0.5)  # in the hands of the others; if one of them dies, its run is ours
            news.tell()
            carry_out(runs, store, stock, watch, news, alone=False)
        news.tell()
    finally:
        watch.close()


class News:
    """Says of each run that ends how it ended, whoever carried it out."""

    def __init__(self, runs: Mapping[str, Run], store: Store, estimate: Estimate, watch: GridWatch) -> None:
        self.runs, self.store, self.estimate, self.watch = runs, store, estimate, watch
        self.known = set(runs) - set(estimate.seconds)  # those that were done before; others may have ended since

    def tell(self) -> None:
        ended = [name for name in self.runs if name not in self.known and self.store.settled(name)]
        self.known.update(ended)
        lines = [self._said(name) for name in ended] or [""]
        left = self.estimate.left([name for name in self.runs if name not in self.known])
        for said in lines:
            self.watch.stand(self.store.count(self.runs), left, said)

    def _said(self, name: str) -> str:
        run, summary = self.runs[name], self.store.summary(name)
        label = f"{run.config.recipe.partition('/')[2]}, seed {run.config.seed}"
        if summary is None:
            return f"{label}: FAILED: {self.store.failure(name)}"
        headline = summary["headline"]
        self.estimate.learn(name, summary["seconds"])
        return f"{label}: {headline} {summary['final'].get(headline, float('nan')):.3f}, {summary['seconds']:.0f} s"


def share_out(device: str, jobs: int) -> None:
    """Where several runs stand side by side, each has its part of the cores, and plans with its part of a GPU's memory."""
    if jobs > 1:
        torch.set_num_threads(max(1, default_count() // jobs))  # threads that wait for a core keep others from it
        for shared in {device_of(device), torch.device("cpu")}:
            limit_device_memory(shared, 0.95 / jobs)


def carry_out(
    runs: Mapping[str, Run], store: Store, stock: Stock, watch: GridWatch, news: News | None = None, alone: bool = True
) -> None:
    """All runs that nobody else has claimed; those on the data at hand first."""
    at_hand = ""
    waiting = dict(runs)
    while waiting:
        name = next((n for n, run in waiting.items() if run.shares == at_hand), next(iter(waiting)))
        run = waiting.pop(name)
        if store.settled(name):
            continue
        with store.claimed(name) as ours:
            if not ours:
                continue
            at_hand = run.shares
            _one(run if alone else inside(run), store, stock, watch)
        if news is not None:
            news.tell()


def _one(run: Run, store: Store, stock: Stock, watch: GridWatch) -> None:
    """Begin a run, or go on with it; a run that fails is written down and stops nobody else."""
    place = store.place(run.name)
    write_atomically(
        place / "config.yaml", yaml.safe_dump(run.config.to_dict(), sort_keys=False, allow_unicode=True).encode()
    )
    try:
        federation, executor = stock.federation(run), stock.executor(run)
        carried_out(run.config, place, federation, executor, resume=True, watch=watch, keep_model=False)
        store.tidy(run.name)
        return
    except MotetError as error:
        why = str(error)
    except (
        Exception
    ) as error:  # a fault of ours in one run does not end the others; where it happened is kept with the run
        why = f"(traceback in {place / TRACE}) {type(error).__name__}: {error}"
        (place / TRACE).write_text(traceback.format_exc(), "utf-8")
    store.fail(run.name, why)
    stock.close_executor()  # jobs of the run may still be waiting there


def run_beside(runs: Mapping[str, Run], store: Store, watch: GridWatch, parent: int) -> None:
    """What a helping process does; it ends with the process that began it, even if that is killed."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with Stock() as stock:
        carry_out(runs, store, stock, watch, alone=False)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # at any moment: what is finished is kept, and the rest is begun again from its checkpoint
