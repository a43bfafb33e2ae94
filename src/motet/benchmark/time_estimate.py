"""How long a grid will take and how much of it fits side by side, from a few real steps; corrected as runs finish."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from motet.benchmark.cells import BenchmarkRun
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.experiment.build.component_builders import build_algorithm
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.commands.dry_run import time_steps
from motet.experiment.commands.run_folder import prepare_plan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.memory_budget import free_memory
from motet.learning.executors.process_executor import default_worker_count
from motet.learning.executors.serial_executor import SerialExecutor, one_thread
from motet.learning.solver import Solver

MOST_ON_A_GPU = 4
FORWARD = 0.35  # of a training step's time: looking without learning


@dataclass(frozen=True)
class ProbeResult:
    """Seconds a training step takes one process, the memory that process needs, the examples there are, and the clients."""

    step: float
    memory: int
    train: int
    test: int
    clients: int


@dataclass
class TimeEstimate:
    """Seconds each run needs in one process. `actual_seconds` is what finished runs took, by their expectation."""

    seconds: dict[str, float]
    jobs: int
    actual_seconds: dict[str, float] = field(default_factory=dict)

    def record(self, name: str, seconds: float) -> None:
        self.actual_seconds[name] = seconds

    def seconds_left(self, names: Iterable[str]) -> float:
        """Seconds until these are done, with as many at a time as there are jobs."""
        known = sum(self.seconds[n] for n in self.actual_seconds)
        ratio = sum(self.actual_seconds.values()) / known if known else 1.0
        return ratio * sum(self.seconds[n] for n in names) / self.jobs


def estimate_time(
    runs: Mapping[str, BenchmarkRun],
    stock: SharedResources,
    jobs: int | None,
    readings: Mapping[str, Sequence[TableMetric]] = {},
) -> TimeEstimate:
    """A few steps for every pair of corpus and model, and a beginning for every method on it: what is wrong is found here.

    `readings`: what tables will read off each run.
    """
    paces: dict[str, ProbeResult] = {}
    metric_names: dict[str, list[str]] = {}
    tried: set[tuple[str, str]] = set()
    seconds = {}
    for run in runs.values():
        kind = repr(
            (run.config.data, run.config.model, run.config.task, run.config.groups, run.config.solver.get("batch"))
        )
        method = (kind, repr(run.config.algorithm))
        if method not in tried:
            tried.add(method)
            with _said_of(run):
                prepare_plan(run.config, stock.federation(run))
        if kind not in paces:
            paces[kind] = _pace(run.config, stock.federation(run))
            metric_names[kind] = _measures(stock.federation(run))
        with _said_of(run):
            for reading in readings.get(run.name, ()):
                reading.check(metric_names[kind], run.config)
        seconds[run.name] = _seconds(run.config, paces[kind])
    return TimeEstimate(seconds, _jobs(runs, list(paces.values()), jobs))


@contextmanager
def _said_of(run: BenchmarkRun) -> Iterator[None]:
    """What cannot work is said before hours of others, not after, and of which run it is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{run.config.recipe}: {error}") from None


def _measures(federation: Federation) -> list[str]:
    """The metrics of a federation's task, or of all its tasks."""
    return list(
        dict.fromkeys(m for task in (federation.task, *(g.task for g in federation.groups)) for m in task.metric_names)
    )


def _pace(config: RunConfig, federation: Federation) -> ProbeResult:
    solver: Solver = getattr(build_algorithm(config), "solver", Solver())
    with PeakMemory(interval=0.05) as memory, one_thread():
        # at a rate of 0: steps take as long, and a method that diverges is that run's failure, not the grid's
        _, step = time_steps(
            federation.groups[0], SerialExecutor(resolve_device(config.device)), replace(solver, lr=0.0)
        )
        corpus, dev = federation.corpus, federation.partition.dev
        looked_at = len(corpus) - corpus.num_train + (0 if dev is None else len(dev))
        return ProbeResult(step, memory.measure(), corpus.num_train, looked_at, len(federation.clients))


def _seconds(config: RunConfig, pace: ProbeResult) -> float:
    """Training, looking, and a little for beginning. All clients are taken to be of one size: it is an estimate."""
    algorithm = build_algorithm(config)
    solver: Solver = getattr(algorithm, "solver", Solver())
    central = config.algorithm.type == "centralised"
    clients = 1 if central else int(config.partition.options.get("clients", pace.clients))
    steps = (
        config.rounds * min(config.cohort.size or clients, clients) * solver.num_steps(max(1, pace.train // clients))
    )
    models = min(config.evaluation.clients or clients, clients) if algorithm.personal else 1
    looks = (
        config.rounds // config.evaluation.every + 1
    ) * models + 2  # the last two: clients' own test sets, item by item
    return 1.0 + pace.step * (steps + FORWARD * looks * pace.test / solver.batch)


def _jobs(runs: Mapping[str, BenchmarkRun], paces: list[ProbeResult], wanted: int | None) -> int:
    """As many runs side by side as cores, or a GPU's memory, allow; never more than there are."""
    if wanted is not None:
        return min(wanted, len(runs))
    device = resolve_device(next(iter(runs.values())).config.device)
    if device.type == "cpu":
        need, most = max(pace.memory for pace in paces), default_worker_count()
    else:
        need, most = 2 * torch.cuda.max_memory_reserved(device), min(MOST_ON_A_GPU, _cores() // 4)
    return max(1, min(most, int(0.7 * free_memory(device) / max(1, need)), len(runs)))


def _cores() -> int:
    return os.cpu_count() or 1
