"""Estimate how long a benchmark takes and how many runs fit side by side, from a few real training steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from motet.benchmark.cells import BenchmarkRun
from motet.benchmark.error_labels import label_config_errors
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.table_metrics import TableMetric
from motet.core.threads import single_thread
from motet.experiment.build.component_builders import build_algorithm, build_solver
from motet.experiment.build.executor_builder import resolve_device, uses_bfloat16
from motet.experiment.build.federation import Federation
from motet.experiment.commands.dry_run import time_steps
from motet.experiment.commands.recipe_runner import prepare_plan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.memory_budget import free_memory
from motet.learning.executors.process_executor import default_worker_count
from motet.learning.executors.serial_executor import SerialExecutor

MAX_JOBS_PER_GPU = 4
EVALUATION_COST = 0.35  # of a training step
STARTUP_SECONDS = 1.0


@dataclass(frozen=True)
class ProbeResult:
    """Measurements of a few training steps in one process, and the size of the data."""

    step_seconds: float
    memory_bytes: int
    train_examples: int
    evaluation_examples: int
    clients: int


@dataclass
class TimeEstimate:
    """The expected seconds of each run in one process, corrected by the time that finished runs took."""

    seconds: dict[str, float]
    jobs: int
    actual_seconds: dict[str, float] = field(default_factory=dict)

    def record(self, name: str, seconds: float) -> None:
        self.actual_seconds[name] = seconds

    def seconds_left(self, names: Iterable[str]) -> float:
        """Return the expected seconds until these runs are done, with `jobs` runs at a time."""
        expected = sum(self.seconds[name] for name in self.actual_seconds)
        correction = sum(self.actual_seconds.values()) / expected if expected else 1.0
        return correction * sum(self.seconds[name] for name in names) / self.jobs


def estimate_time(
    runs: Mapping[str, BenchmarkRun],
    resources: SharedResources,
    jobs: int | None,
    metrics: Mapping[str, Sequence[TableMetric]] = {},
    finished: Iterable[tuple[BenchmarkRun, float]] = (),
) -> TimeEstimate:
    """Train a few steps for every combination of data and model, and initialize every method on it.

    This finds mistakes before the first run. `metrics` are the numbers that tables will read from each run. `finished` are
    other runs with their seconds. The steps are those of one client, and on a GPU a run that packs its clients takes much
    less, so finished runs with the same data and model correct the estimate.
    """
    probes: dict[str, ProbeResult] = {}
    metric_names: dict[str, list[str]] = {}
    checked_methods: set[tuple[str, str]] = set()
    seconds = {}
    for run in runs.values():
        config, workload = run.config, _workload(run.config)
        method = (workload, repr(config.algorithm))
        if method not in checked_methods:
            checked_methods.add(method)
            with label_config_errors(config.recipe):
                prepare_plan(config, resources.federation(run))
        if workload not in probes:
            probes[workload] = _probe(config, resources.federation(run))
            metric_names[workload] = _metric_names(resources.federation(run))
        with label_config_errors(config.recipe):
            for metric in metrics.get(run.name, ()):
                metric.check(metric_names[workload], config)
        seconds[run.name] = _estimate_run(config, probes[workload])
    estimate = TimeEstimate(seconds=seconds, jobs=_choose_jobs(runs, list(probes.values()), jobs))
    for run, actual_seconds in finished:
        if (workload := _workload(run.config)) in probes:
            estimate.seconds[run.name] = _estimate_run(run.config, probes[workload])
            estimate.record(run.name, actual_seconds)
    return estimate


def _workload(config: RunConfig) -> str:
    """Return what a training step depends on. Runs that are equal in it share a measurement."""
    return repr((config.data, config.model, config.task, config.groups, config.solver.get("batch")))


def _metric_names(federation: Federation) -> list[str]:
    """Return the metrics of the federation's task and of the tasks of its groups."""
    tasks = (federation.task, *(group.task for group in federation.groups))
    return list(dict.fromkeys(name for task in tasks for name in task.metric_names))


def _probe(config: RunConfig, federation: Federation) -> ProbeResult:
    solver, device = build_solver(config), resolve_device(config.device)
    executor = SerialExecutor(device, use_bf16=uses_bfloat16(config.precision, device))
    with PeakMemory(interval=0.05, max_share=0.5) as memory, single_thread():
        # A learning rate of 0 takes as long, and cannot diverge. If the run's own rate diverges, only that run fails.
        _, step_seconds = time_steps(federation.groups[0], executor, replace(solver, lr=0.0))
        corpus, dev = federation.corpus, federation.partition.dev
        return ProbeResult(
            step_seconds=step_seconds,
            memory_bytes=memory.measure(),
            train_examples=corpus.num_train,
            evaluation_examples=len(corpus) - corpus.num_train + (0 if dev is None else len(dev)),
            clients=len(federation.clients),
        )


def _estimate_run(config: RunConfig, probe: ProbeResult) -> float:
    """Estimate the seconds for startup, training and evaluation, as if all clients had the same number of examples."""
    algorithm, solver = build_algorithm(config), build_solver(config)
    is_central = config.algorithm.type == "centralized"
    clients = 1 if is_central else int(config.partition.options.get("clients", probe.clients))
    cohort_size = min(config.cohort.size or clients, clients)
    steps = config.rounds * cohort_size * solver.num_steps(max(1, probe.train_examples // clients))
    models = min(config.evaluation.clients or clients, clients) if algorithm.personal else 1
    # After the last round, the clients' test sets and the per-example scores are evaluated too.
    evaluations = (config.rounds // config.evaluation.every + 1) * models + 2
    evaluation_steps = evaluations * probe.evaluation_examples / solver.batch
    return STARTUP_SECONDS + probe.step_seconds * (steps + EVALUATION_COST * evaluation_steps)


def _choose_jobs(runs: Mapping[str, BenchmarkRun], probes: list[ProbeResult], requested: int | None) -> int:
    """Return the number of runs at a time: as many as the cores and the memory allow, at most one per run."""
    if requested is not None:
        return min(requested, len(runs))
    device = resolve_device(next(iter(runs.values())).config.device)
    if device.type == "cpu":
        memory_per_job, limit = max(probe.memory_bytes for probe in probes), default_worker_count()
    else:
        memory_per_job = 2 * torch.cuda.max_memory_reserved(device)
        limit = min(MAX_JOBS_PER_GPU, (os.cpu_count() or 1) // 4)
    return max(1, min(limit, int(0.7 * free_memory(device) / max(1, memory_per_job)), len(runs)))
