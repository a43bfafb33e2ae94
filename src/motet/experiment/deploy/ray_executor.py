"""Jobs on Ray's actors: a executor whose workers are on as many machines as the cluster has.

Clients, their memories and the mailbox stay here, so a run repeats to the bit and resumes as any simulation does; what
travels are jobs, which are pure: one whose actor died is done again by another and gives the same answer. Ray moves objects
with a serialiser of its own between processes of one owner; what we hand to it are bytes and arrays, framed as on any wire.
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
    raise ConfigError("transport.type=ray needs ray; run: pip install 'motet[ray]'") from None

Order = tuple[int, bytes, list[Any]]  # the job's number, its head, its tensors in Ray's store
Answer = tuple[int, str, bytes, list[np.ndarray]]  # the number, what it is, its head, its tensors


@dataclass(frozen=True)
class RayOptions:
    address: str | None = None  # a cluster's; None: this machine
    actors: int | None = None  # None: one a GPU or, without any, one a core
    restarts: int = 3  # of an actor that dies

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"transport.actors is {self.actors}; at least 1 is needed.")


class RayActor:
    """A device, and a executor on it. It builds models and texts itself, from the runs' configurations."""

    def __init__(self, configs: list[dict[str, Any]], device: str) -> None:
        from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
        from motet.experiment.build.federation_builder import build_federations

        torch.set_num_threads(1)
        runs = {str(i): RunConfig.from_settings("actor", config) for i, config in enumerate(configs)}
        federations = list(build_federations(runs).values())
        self.executor = create_executor(resolve_device(device), InProcessOptions(0), federations, PrefixCache())
        self.known: dict[str, Model | Features] = {}
        for federation in federations:
            self.known |= {federation.model.key: federation.model, federation.features.key: federation.features}

    def capacity(self) -> int:
        return self.executor.capacity

    def work(self, orders: list[Order]) -> list[Answer]:
        """Several jobs at once, so that the executor may run them as one."""
        for number, head, tensors in orders:
            self.executor.submit(number, _opened(head, ray.get(tensors), self.known.__getitem__))
        done: list[Answer] = []
        while len(done) < len(orders):
            done += [_told(number, answer) for number, answer in self.executor.wait_completed()]
        return done


def _opened(head: bytes, tensors: list[np.ndarray], resolve: Callable[[str], Any] | None = None) -> Any:
    """A job or an answer from its head and the tensors that came beside it."""
    spots = iter(tensors)

    def tensor(dtype: torch.dtype, shape: tuple[int, ...], _: int) -> Tensor:
        return tensor_from_bytes(next(spots).data, dtype, shape)

    return decode_header(read_header(memoryview(head))[0], tensor, resolve)


def _told(number: Any, answer: Any) -> Answer:
    if isinstance(answer, JobFailure):
        return number, type(answer.error).__name__, str(answer.error).encode(), []
    head, tensors = encode_header(answer)
    return number, "answer", head, [np.frombuffer(buffer_bytes(t), np.uint8) for t in tensors]


class RayExecutor:
    """Gives jobs to whichever actor is free. `here` does the server's own jobs."""

    def __init__(self, actors: list[Any], capacity: int, here: Executor, restarts: int) -> None:
        self.actors, self.here, self.share, self.restarts = actors, here, capacity, restarts
        self.capacity = 2 * capacity * len(actors)
        self.waiting: deque[tuple[int, Job]] = deque()
        self.keys: dict[int, Hashable] = {}
        self.working: dict[Any, tuple[Any, list[int]]] = {}  # by Ray's promise: the actor, the jobs' numbers
        self.idle = list(actors)
        self.stored: dict[int, tuple[Buffer, Any]] = {}  # tensors in Ray's store, while jobs that hold them wait or run
        self.jobs = self.shared_out = 0

    @property
    def examples_processed(self) -> int:
        return self.shared_out + self.here.examples_processed

    def submit(self, key: Hashable, job: Job) -> None:
        self.jobs += 1
        self.keys[self.jobs] = key
        self.waiting.append((self.jobs, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        while self.waiting and self.idle:
            each = max(1, min(self.share, -(-len(self.waiting) // len(self.idle))))
            self._send(self.idle.pop(0), [self.waiting.popleft() for _ in range(min(each, len(self.waiting)))])
        promise = ray.wait(list(self.working))[0][0]
        actor, numbers = self.working.pop(promise)
        self.idle.append(actor)
        try:
            answers = [(number, self._read(kind, head, tensors)) for number, kind, head, tensors in ray.get(promise)]
        except ray.exceptions.RayActorError as error:
            lost = RunError(f"an actor died {1 + self.restarts} times over the same work: {first_line(error)}")
            answers = [(number, JobFailure(lost)) for number in numbers]
        if not self.working and not self.waiting:
            self.stored.clear()
        return [(self.keys.pop(number), answer) for number, answer in answers]

    def run(self, job: Job) -> Any:
        return self.here.run(job)

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)
        self.here.close()
        ray.shutdown()

    def _send(self, actor: Any, jobs: list[tuple[int, Job]]) -> None:
        orders: list[Order] = []
        for number, job in jobs:
            head, tensors = encode_header(job, lambda v: v.key if isinstance(v, Model | Features) else None)
            orders.append((number, head, [self._put(t) for t in tensors]))
        self.working[actor.work.remote(orders)] = (actor, [number for number, _ in jobs])

    def _put(self, tensor: Buffer) -> Any:
        """What many jobs share (the global model) goes to Ray's store once."""
        if id(tensor) not in self.stored:
            self.stored[id(tensor)] = (tensor, ray.put(np.frombuffer(buffer_bytes(tensor), np.uint8)))
        return self.stored[id(tensor)][1]

    def _read(self, kind: str, head: bytes, tensors: list[np.ndarray]) -> Any:
        if kind != "answer":
            return JobFailure(getattr(errors, kind)(head.decode()))
        answer = _opened(head, tensors)
        self.shared_out += answer.examples_processed if isinstance(answer, FitResult) else 0
        return answer


def connect_ray(options: RayOptions, here: Executor, configs: Sequence[RunConfig]) -> RayExecutor:
    """Join the cluster, or make one of this machine, and put a executor on each of its devices."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    source = str(
        Path(__file__).parents[2]
    )  # on this machine actors run this very source; a cluster has Motet installed
    local = {"env_vars": {"PYTHONPATH": source}} if options.address is None else None
    try:
        ray.init(options.address, runtime_env=local, include_dashboard=False if options.address is None else None,
                 log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"Ray cannot be reached at {options.address or 'this machine'}: {first_line(error)}") from None
    has: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus, cores = int(has.get("GPU", 0)), int(has.get("CPU", 1))
    count = options.actors or gpus or cores
    needs = {"num_gpus": min(1.0, gpus / count)} if gpus else {"num_cpus": min(1.0, cores / count)}
    remote: Any = ray.remote(RayActor)
    made = remote.options(max_restarts=options.restarts, max_task_retries=options.restarts, **needs)
    settings = [config.to_dict() for config in configs]
    actors = [made.remote(settings, "cuda" if gpus else "cpu") for _ in range(count)]
    return RayExecutor(actors, ray.get(actors[0].capacity.remote()), here, options.restarts)
