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
from motet.benchmark.estimate import Estimate
from motet.benchmark.stock import Stock
from motet.benchmark.store import TRACE, Store
from motet.core.errors import MotetError
from motet.experiment.build import device_of
from motet.experiment.session import carried_out
from motet.learning.spare import take_share
from motet.learning.workers import default_count
from motet.report.grid import GridWatch
from motet.transport.pages import write_atomically


class Crew:
    """Processes that take runs of the same grid; they end when this is left."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        self.beside: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.beside:
            process.terminate()
        for process in self.beside:
            process.wait()

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
    try:
        carry_out(runs, store, stock, watch, estimate, alone=estimate.jobs == 1)
        while waiting := [name for name in runs if not store.settled(name)]:
            time.sleep(0.5)  # in the hands of the others; if one of them dies, its run is ours
            watch.stand(store.count(runs), estimate.left(waiting))
            carry_out(runs, store, stock, watch, estimate, alone=False)
    finally:
        watch.close()


def share_out(device: str, jobs: int) -> None:
    """Where several runs stand side by side, each has its part of the cores, and plans with its part of a GPU's memory."""
    if jobs > 1:
        torch.set_num_threads(max(1, default_count() // jobs))  # threads that wait for a core keep others from it
        for shared in {device_of(device), torch.device("cpu")}:
            take_share(shared, 0.95 / jobs)


def carry_out(
    runs: Mapping[str, Run], store: Store, stock: Stock, watch: GridWatch, estimate: Estimate | None = None, alone: bool = True
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
            said, seconds = _one(run if alone else inside(run), store, stock, watch)
        if estimate is not None:
            if seconds is not None:
                estimate.learn(name, seconds)
            left = [n for n in runs if not store.settled(n)]
            watch.stand(store.count(runs), estimate.left(left), said)


def _one(run: Run, store: Store, stock: Stock, watch: GridWatch) -> tuple[str, float | None]:
    """Begin a run, or go on with it; a run that fails is written down and stops nobody else."""
    place, began = store.place(run.name), time.monotonic()
    write_atomically(place / "config.yaml", yaml.safe_dump(run.config.plain(), sort_keys=False, allow_unicode=True).encode())
    label = run.config.recipe.partition("/")[2]
    try:
        federation, bench = stock.federation(run), stock.bench(run)
        summary = carried_out(run.config, place, federation, bench, resume=True, watch=watch, keep_model=False)
    except MotetError as error:
        store.fail(run.name, str(error))
        stock.close_bench()  # jobs of the run may still be waiting there
        return f"{label}, seed {run.config.seed}: FAILED: {error}", None
    except Exception as error:  # a fault of ours in one run does not end the others; where it happened is kept with the run
        why = f"(traceback in {place / TRACE}) {type(error).__name__}: {error}"
        (place / TRACE).write_text(traceback.format_exc(), "utf-8")
        store.fail(run.name, why)
        stock.close_bench()
        return f"{label}, seed {run.config.seed}: FAILED: {why}", None
    store.tidy(run.name)
    headline, seconds = summary["headline"], time.monotonic() - began
    score = summary["final"].get(headline, float("nan"))
    return f"{label}, seed {run.config.seed}: {headline} {score:.3f}, {seconds:.0f} s", seconds


def run_beside(runs: Mapping[str, Run], store: Store, watch: GridWatch, parent: int) -> None:
    """What a helping process does; it ends with the process that began it, even if that is killed."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with Stock() as stock:
        carry_out(runs, store, stock, watch, alone=False)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # at any moment: what is finished is kept, and the rest is begun again from its checkpoint
