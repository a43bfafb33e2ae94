"""Spreads tasks over Ray actors: those that take longest first, each to the actor with the least to do."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray

from motet.core.errors import RunError, first_line
from motet.experiment.deploy.ray_actor import TaskMessage, pack, packet_bytes, read_first, unpack
from motet.experiment.deploy.ray_load_balancing import QueuedTask, TimeEstimates, WorkItem, spread
from motet.learning.data.features import Features
from motet.learning.modules.model import Model
from motet.transport.client_state import StateKey, StateSource
from motet.wire.format import Buffer, buffer_bytes, encode_header

StateCopy = tuple[str, Any]  # the node that has it, and a reference to it
STATE_LOST = (
    "the state of a client was lost with all nodes that had it; continue after the last checkpoint: motet resume."
)


@dataclass(eq=False)
class RemoteTask:
    """A job, or the requests of several clients. `make_value` returns what is sent; it is called when it is sent.

    `states` are those that the clients had before.
    """

    items: tuple[WorkItem, ...]
    make_value: Callable[[], Any]
    key: Any = None  # of the caller
    states: Mapping[StateKey, StateSource] = field(default_factory=dict)
    failures: int = 0


@dataclass(frozen=True, eq=False)
class Completion:
    """A finished task: its report, a reference to its result, and the actor that has it. `error` if it was given up."""

    task: RemoteTask
    report: Any = None
    result: Any = None
    actor: Any = None
    error: RunError | None = None


class ActorPool:
    """Sends tasks to actors, and sends those of a dead actor to another one. Tasks have no side effects."""

    def __init__(self, actors: Sequence[Any], capacity: int, restarts: int) -> None:
        self.capacity, self.restarts = capacity, restarts
        self.idle = list(actors)
        self.running: dict[Any, tuple[Any, list[RemoteTask], list[Any]]] = {}  # by the reference to the reports
        self.restarting: dict[Any, Any] = {}  # reference to the answer of an actor that died -> the actor
        self.queue: list[QueuedTask[RemoteTask]] = []  # a heap with the longest task first
        self.nodes: dict[Any, str] = {}  # of actors, as far as is known
        self.estimates = TimeEstimates()
        self.stored: dict[int, tuple[Buffer, Any]] = {}  # tensors of queued and running tasks in Ray's object store
        self.submitted = self.bytes_sent = self.bytes_received = self.examples_processed = 0

    @property
    def actors(self) -> list[Any]:
        """All actors that live, or may come back."""
        return [*self.idle, *(actor for actor, _, _ in self.running.values()), *self.restarting.values()]

    def submit(self, task: RemoteTask) -> None:
        self.submitted += 1
        heapq.heappush(self.queue, (-self.estimates.estimate(task.items), self.submitted, task))

    def wait_completed(self) -> list[Completion]:
        """Wait until an actor has finished, and return what it did."""
        while True:
            self._dispatch()
            if not self.running and not self.restarting:
                raise RunError(f"all Ray actors died more than {self.restarts} times; see the logs of Ray.")
            ready = ray.wait([*self.running, *self.restarting])[0][0]
            if ready in self.restarting:
                self._readmit(ready)
                continue
            actor, tasks, results = self.running.pop(ready)
            try:
                reports = [unpack(packet) for packet in self.fetch(ready)]
            except ray.exceptions.RayTaskError as error:
                if is_loss(error.cause):
                    raise RunError(STATE_LOST) from error
                raise
            except ray.exceptions.RayActorError as error:
                self.restarting[actor.capacity.options(max_task_retries=-1).remote()] = actor
                if completions := self._repeat(tasks, error):
                    return completions
                continue
            self.idle.append(actor)
            return [Completion(*row, actor) for row in zip(tasks, reports, results, strict=True)]

    def fetch(self, reference: Any) -> Any:
        """Return a value from Ray's object store, and count its bytes."""
        return self._count(ray.get(reference))

    def load_state(self, copies: Sequence[StateCopy]) -> Any:
        """Return a client state of which nodes have copies, and count its bytes."""
        try:
            return unpack(self._count(read_first(self._order(copies))))
        except ray.exceptions.RayError as error:
            raise RunError(STATE_LOST) from error

    def _count(self, value: Any) -> Any:
        self.bytes_received += sum(map(packet_bytes, value if isinstance(value, list) else [value]))
        return value

    def _order(self, copies: Sequence[StateCopy], actor: Any = None) -> list[Any]:
        """Return references to copies: first one on the node of the actor, last those on nodes that may be gone."""
        gone = {self.nodes.get(each) for each in self.restarting.values()}
        nearest = sorted(copies, key=lambda copy: (copy[0] in gone, copy[0] != self.nodes.get(actor)))
        return [reference for _, reference in nearest]

    def release(self) -> None:
        """Forget the tensors of finished tasks, if none is open."""
        if not self.running and not self.queue:
            self.stored.clear()

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)

    def _readmit(self, ready: Any) -> None:
        """Use an actor again that has restarted."""
        actor = self.restarting.pop(ready)
        try:
            ray.get(ready)
            self.idle.append(actor)
        except ray.exceptions.RayActorError:
            return  # it died too often

    def _repeat(self, tasks: Sequence[RemoteTask], error: Exception) -> list[Completion]:
        """Queue the tasks of a dead actor again. Return those that were repeated too often."""
        given_up = []
        for task in tasks:
            task.failures += 1
            if task.failures <= self.restarts:
                self.submit(task)
            else:
                reason = RunError(f"an actor died {task.failures} times on the same jobs: {first_line(error)}")
                given_up.append(Completion(task, error=reason))
        return given_up

    def _dispatch(self) -> None:
        if not self.queue or not self.idle:
            return
        batches = spread(self.queue, len(self.idle), len(self.actors), self.capacity)
        actors, self.idle = self.idle, []
        for actor, batch in zip(actors, batches, strict=True):
            self._send(actor, batch) if batch else self.idle.append(actor)

    def _send(self, actor: Any, tasks: list[RemoteTask]) -> None:
        messages: list[TaskMessage] = []
        for task in tasks:
            header, tensors = encode_header(task.make_value(), _find_key)
            states = [(*key, self._locate(source, actor)) for key, source in task.states.items()]
            messages.append((header, [self._store(tensor) for tensor in tensors], states))
            self.bytes_sent += len(header)
        reports, *results = actor.run_tasks.options(num_returns=1 + len(tasks)).remote(messages)
        self.running[reports] = (actor, tasks, results)

    def _locate(self, source: StateSource, actor: Any) -> list[Any]:
        """Return references to the copies of a state. One that this process has is stored until the task ends."""
        if source.remote is not None:
            return self._order(source.remote, actor)
        packet = pack(source.load())
        self.bytes_sent += packet_bytes(packet)
        return [ray.put(packet)]

    def _store(self, tensor: Buffer) -> Any:
        """Put a tensor into Ray's object store; once, even if many tasks have it, as they have the global model."""
        if id(tensor) not in self.stored:
            data = np.frombuffer(buffer_bytes(tensor), np.uint8)
            self.bytes_sent += data.nbytes
            self.stored[id(tensor)] = (tensor, ray.put(data))
        return self.stored[id(tensor)][1]


def _find_key(value: object) -> str | None:
    """Return the key of what actors have already: models and corpora."""
    return value.key if isinstance(value, Model | Features) else None


def is_loss(cause: BaseException | None) -> bool:
    """True if a method failed because a value that it needs was lost with an actor or a node."""
    return isinstance(cause, ray.exceptions.ObjectLostError | ray.exceptions.RayActorError)
