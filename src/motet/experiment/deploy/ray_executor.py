"""An executor that runs jobs on Ray actors, on as many machines as the cluster has.

Clients, their states and the mailbox stay in this process, so a run is reproducible to the bit and resumes as any
simulation does. Jobs have no side effects: if an actor dies, another one runs its jobs again with the same result.
Sums of replies need not pass through this process (`ray_transport.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from motet.core import errors
from motet.core.errors import ConfigError, RunError, first_line
from motet.core.work import Executor, Job, JobFailure
from motet.experiment.deploy.ray_actor import RayActor, unpack
from motet.experiment.deploy.ray_actor_pool import ActorPool, Completion, RemoteTask
from motet.experiment.deploy.ray_load_balancing import WorkItem
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.jobs import Fit, FitResult, Infer

SOURCE = Path(__file__).parents[3]  # the folder that holds the package
JOBS_AHEAD = 4  # submitted jobs for each job that runs, so that the longest can start first


@dataclass(frozen=True)
class RayOptions:
    """Options of `transport.type=ray`."""

    address: str | None = None  # of a cluster; None: start Ray on this machine
    actors: int | None = None  # None: one per GPU or, without GPUs, one per core
    restarts: int = 3  # of an actor that dies

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"transport.actors is {self.actors}; expected at least 1.")


class RayExecutor(Executor):
    """Runs jobs on actors. `local` runs the server's own jobs."""

    capacity: int

    def __init__(self, pool: ActorPool, local: Executor) -> None:
        self.pool, self.local = pool, local
        self.capacity = JOBS_AHEAD * pool.capacity * len(pool.actors)

    @property
    def examples_processed(self) -> int:
        return self.pool.examples_processed + self.local.examples_processed

    def submit(self, key: Hashable, job: Job) -> None:
        self.pool.submit(RemoteTask((describe_work(job),), lambda: job, key))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        completions = self.pool.wait_completed()
        results = [(completion.task.key, self._read(completion)) for completion in completions]
        self.pool.release()
        return results

    def run(self, job: Job) -> Any:
        return self.local.run(job)

    def close(self) -> None:
        self.pool.close()
        self.local.close()
        ray.shutdown()

    def _read(self, completion: Completion) -> Any:
        if completion.error is not None:
            return JobFailure(completion.error)
        kind, text, seconds = completion.report
        self.pool.estimates.record(completion.task.items, [seconds])
        if kind:
            return JobFailure(getattr(errors, kind)(text))
        result = unpack(self.pool.fetch(completion.result))
        self.pool.examples_processed += result.examples_processed if isinstance(result, FitResult) else 0
        return result


def describe_work(job: Job) -> WorkItem:
    """Return how much work a job is. The rows tell clients apart: an executor does not know their names."""
    if not isinstance(job, Fit | Infer):
        return WorkItem(type(job).__name__, None, 1.0)
    rows = job.examples.rows
    client = (job.model.key, len(rows), int(rows[0]), int(rows[-1])) if len(rows) else None
    steps = job.solver.num_steps(len(rows)) * job.solver.batch if isinstance(job, Fit) else len(rows)
    return WorkItem(type(job).__name__, client, float(steps))


def connect_ray(options: RayOptions, local: Executor, configs: Sequence[RunConfig]) -> RayExecutor:
    """Connect to a Ray cluster, or start Ray on this machine, and create an actor for each device."""
    _start_ray(options)
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    count = options.actors or gpus or cores
    share = min(1.0, (gpus or cores) / count)
    needs = {"num_gpus": share} if gpus else {"num_cpus": share}
    remote_class: Any = ray.remote(RayActor)
    actor_class = remote_class.options(max_restarts=options.restarts, **needs)
    settings = [config.to_dict() for config in configs]
    actors = [actor_class.remote(settings, "cuda" if gpus else "cpu", share) for _ in range(count)]
    pool = ActorPool(actors, ray.get(actors[0].capacity.remote()), options.restarts)
    return RayExecutor(pool, local)


def _start_ray(options: RayOptions) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    is_local = options.address is None
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        ray.init(
            options.address or "local",  # None would join any cluster that runs on this machine
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
            if is_local
            else None,  # a cluster has Motet installed
            include_dashboard=False if is_local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"Ray cannot be reached at {options.address or 'this machine'}: {first_line(error)}") from None
