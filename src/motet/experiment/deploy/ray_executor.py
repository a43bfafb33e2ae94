"""An executor that runs jobs on Ray actors, on as many machines as the cluster has.

Clients, their states and the mailbox stay in this process, so a run is reproducible to the bit and resumes as any
simulation does. Jobs have no side effects: if an actor dies, another one runs its jobs again with the same result. Ray
has a serializer; we give it only bytes and arrays, in the format of our messages.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.core import errors
from motet.core.errors import ConfigError, RunError, first_line
from motet.core.install_hint import install_command
from motet.core.work import Executor, Job, JobFailure
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.data.features import Features
from motet.learning.executors.serial_executor import PrefixCache
from motet.learning.jobs import FitResult
from motet.learning.modules.model import Model
from motet.wire.format import Buffer, buffer_bytes, decode_header, encode_header, read_header, tensor_from_bytes

try:
    import ray
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=ray needs ray; run: {install_command('ray')}") from None

SOURCE = Path(__file__).parents[3]  # the folder that holds the package
JobMessage = tuple[int, bytes, list[Any]]  # job ID, header, tensors as references to Ray's object store
ResultMessage = tuple[
    int, str, bytes, list[np.ndarray]
]  # job ID, "result" or an error's class, header or text, tensors


@dataclass(frozen=True)
class RayOptions:
    """Options of `transport.type=ray`."""

    address: str | None = None  # of a cluster; None: start Ray on this machine
    actors: int | None = None  # None: one per GPU or, without GPUs, one per core
    restarts: int = 3  # of an actor that dies

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"transport.actors is {self.actors}; expected at least 1.")


class RayActor:
    """An executor on one device. It builds models and features itself, from the configurations of the runs."""

    def __init__(self, configs: list[dict[str, Any]], device: str) -> None:
        from motet.experiment.build.executor_builder import create_executor, resolve_device
        from motet.experiment.build.federation_builder import build_federations
        from motet.experiment.build.in_process_options import InProcessOptions

        torch.set_num_threads(1)
        runs = {str(i): RunConfig.from_settings("actor", config) for i, config in enumerate(configs)}
        federations = list(build_federations(runs).values())
        options = InProcessOptions(workers=0)
        precision = runs["0"].precision
        self.executor = create_executor(resolve_device(device), options, federations, PrefixCache(), precision)
        self.shared_values: dict[str, Model | Features] = {}  # jobs refer to these by key
        for model, features in (pair for federation in federations for pair in federation.models_with_features):
            self.shared_values |= {model.key: model, features.key: features}

    def capacity(self) -> int:
        return self.executor.capacity

    def run_jobs(self, messages: list[JobMessage]) -> list[ResultMessage]:
        """Run several jobs, which the executor may pack together."""
        for job_id, header, tensors in messages:
            job = _deserialize(header, ray.get(tensors), self.shared_values.__getitem__)
            self.executor.submit(job_id, job)
        results: list[ResultMessage] = []
        while len(results) < len(messages):
            results += [_serialize_result(job_id, result) for job_id, result in self.executor.wait_completed()]
        return results


def _deserialize(header: bytes, tensors: list[np.ndarray], resolve: Callable[[str], Any] | None = None) -> Any:
    """Return a job or a result from its header and its tensors."""
    remaining = iter(tensors)

    def next_tensor(dtype: torch.dtype, shape: tuple[int, ...], _: int) -> Tensor:
        return tensor_from_bytes(next(remaining).data, dtype, shape)

    return decode_header(read_header(memoryview(header))[0], next_tensor, resolve)


def _serialize_result(job_id: Any, result: Any) -> ResultMessage:
    if isinstance(result, JobFailure):
        return job_id, type(result.error).__name__, str(result.error).encode(), []
    header, tensors = encode_header(result)
    return job_id, "result", header, [np.frombuffer(buffer_bytes(tensor), np.uint8) for tensor in tensors]


class RayExecutor(Executor):
    """Sends jobs to actors that are idle. `local` runs the server's own jobs."""

    capacity: int

    def __init__(self, actors: list[Any], actor_capacity: int, local: Executor, restarts: int) -> None:
        self.actors, self.local, self.actor_capacity, self.restarts = actors, local, actor_capacity, restarts
        self.capacity = 2 * actor_capacity * len(actors)
        self.queue: deque[tuple[int, Job]] = deque()
        self.keys: dict[int, Hashable] = {}  # job ID -> key of the caller
        self.running: dict[Any, tuple[Any, list[int]]] = {}  # Ray's object reference -> actor, job IDs
        self.idle = list(actors)
        self.stored: dict[int, tuple[Buffer, Any]] = {}  # tensors of queued and running jobs in Ray's object store
        self.submitted = self.remote_examples = 0

    @property
    def examples_processed(self) -> int:
        return self.remote_examples + self.local.examples_processed

    def submit(self, key: Hashable, job: Job) -> None:
        self.submitted += 1
        self.keys[self.submitted] = key
        self.queue.append((self.submitted, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        while self.queue and self.idle:
            share = -(-len(self.queue) // len(self.idle))
            count = min(max(1, min(self.actor_capacity, share)), len(self.queue))
            self._send(self.idle.pop(0), [self.queue.popleft() for _ in range(count)])
        reference = ray.wait(list(self.running))[0][0]
        actor, job_ids = self.running.pop(reference)
        self.idle.append(actor)
        try:
            results = [(job_id, self._read(kind, header, t)) for job_id, kind, header, t in ray.get(reference)]
        except ray.exceptions.RayActorError as error:
            failure = RunError(f"an actor died {1 + self.restarts} times on the same jobs: {first_line(error)}")
            results = [(job_id, JobFailure(failure)) for job_id in job_ids]
        if not self.running and not self.queue:
            self.stored.clear()
        return [(self.keys.pop(job_id), result) for job_id, result in results]

    def run(self, job: Job) -> Any:
        return self.local.run(job)

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)
        self.local.close()
        ray.shutdown()

    def _send(self, actor: Any, jobs: list[tuple[int, Job]]) -> None:
        messages: list[JobMessage] = []
        for job_id, job in jobs:
            header, tensors = encode_header(job, lambda v: v.key if isinstance(v, Model | Features) else None)
            messages.append((job_id, header, [self._store(tensor) for tensor in tensors]))
        self.running[actor.run_jobs.remote(messages)] = (actor, [job_id for job_id, _ in jobs])

    def _store(self, tensor: Buffer) -> Any:
        """Put a tensor into Ray's object store; once, even if many jobs have it, as they have the global model."""
        if id(tensor) not in self.stored:
            self.stored[id(tensor)] = (tensor, ray.put(np.frombuffer(buffer_bytes(tensor), np.uint8)))
        return self.stored[id(tensor)][1]

    def _read(self, kind: str, header: bytes, tensors: list[np.ndarray]) -> Any:
        if kind != "result":
            return JobFailure(getattr(errors, kind)(header.decode()))
        result = _deserialize(header, tensors)
        self.remote_examples += result.examples_processed if isinstance(result, FitResult) else 0
        return result


def connect_ray(options: RayOptions, local: Executor, configs: Sequence[RunConfig]) -> RayExecutor:
    """Connect to a Ray cluster, or start Ray on this machine, and create an actor for each device."""
    _start_ray(options)
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    count = options.actors or gpus or cores
    needs = {"num_gpus": min(1.0, gpus / count)} if gpus else {"num_cpus": min(1.0, cores / count)}
    remote_class: Any = ray.remote(RayActor)
    actor_class = remote_class.options(max_restarts=options.restarts, max_task_retries=options.restarts, **needs)
    settings = [config.to_dict() for config in configs]
    actors = [actor_class.remote(settings, "cuda" if gpus else "cpu") for _ in range(count)]
    return RayExecutor(actors, ray.get(actors[0].capacity.remote()), local, options.restarts)


def _start_ray(options: RayOptions) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    is_local = options.address is None
    try:
        ray.init(
            options.address,
            runtime_env={"env_vars": {"PYTHONPATH": str(SOURCE)}}
            if is_local
            else None,  # a cluster has Motet installed
            include_dashboard=False if is_local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"Ray cannot be reached at {options.address or 'this machine'}: {first_line(error)}") from None
