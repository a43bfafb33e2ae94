"""Sums replies on the Ray actors that compute them, as a tree. The driver receives one sum, however large the cohort."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
import torch

from motet.core.errors import RunError, first_line
from motet.core.script import ClientId, Collector
from motet.core.weighted import BLOCK, PartialSum, RunningSum, TermLimits, Weighted
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.ray_actor import pack, unpack
from motet.experiment.deploy.ray_actor_pool import ActorPool, Completion, RemoteTask, is_loss
from motet.experiment.deploy.ray_executor import RayExecutor
from motet.experiment.deploy.ray_load_balancing import WorkItem
from motet.experiment.deploy.ray_partial_sums import PartialSumReport, PartialSumTask
from motet.experiment.deploy.ray_states import ExchangeStates
from motet.experiment.loop.round_engine import ConnectClients
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.in_process import InProcessTransport
from motet.transport.requests import Reply, Request, SummedTerm
from motet.wire import MessageSize

PARTS_PER_ACTOR = 4  # so that actors can be loaded evenly


@dataclass(frozen=True)
class SumSetup:
    """What a sum on actors needs to know about the run."""

    run: str  # digest of the configuration
    client_size: Callable[[ClientId], int]
    device: torch.device  # of the server's state


class RayTransport:
    """Runs clients in this process with their jobs on actors; or whole clients on actors, if only their sum is read.

    Clients with a simulated attack run in this process.
    """

    def __init__(self, runtime: ClientRuntime, pool: ActorPool, setup: SumSetup) -> None:
        self.runtime, self.pool, self.setup = runtime, pool, setup
        self.local = InProcessTransport(runtime)
        self.tree: TreeSum | None = None  # of the exchange in progress

    def choose_collector(self, collector: Collector) -> Collector:
        states = self.runtime.client_states
        self.tree = None
        is_honest = self.runtime.tamper is None
        if not (is_honest and isinstance(collector, RunningSum) and isinstance(states, ClientStates)):
            return collector
        self.tree = TreeSum(self.pool, self.setup, collector.limits, states)
        return self.tree

    def send(self, request: Request) -> None:
        (self.tree or self.local).send(request)

    def receive(self, timeout: float) -> Reply | None:
        return (self.tree or self.local).receive(timeout)

    def close(self) -> None:
        self.local.close()


def connect_actors(config: RunConfig, federation: Federation, executor: Executor) -> ConnectClients:
    """Return how a run is connected to its clients on the actors of a `RayExecutor`."""
    is_noisy = config.privacy.type not in ("none", "central")  # clients draw noise from a key that only the driver has
    if not isinstance(executor, RayExecutor) or is_noisy:
        return InProcessTransport
    setup = SumSetup(config.digest, lambda client: federation.participant(client).size, executor.local.device)
    return lambda runtime: RayTransport(runtime, executor.pool, setup)


class TreeSum:
    """One sum. Each part of the cohort is one task; parts are added in pairs, with the shape of `RunningSum`.

    It is also the collector of the exchange. If an actor dies, the parts that it had are computed again: its node may be
    gone with them, and Ray takes half a minute to notice.

    New client states stay on the actors' nodes (`ray_states.py`).
    """

    def __init__(self, pool: ActorPool, setup: SumSetup, limits: TermLimits, states: ClientStates) -> None:
        self.pool, self.setup, self.limits = pool, setup, limits
        self.states = ExchangeStates(pool, setup.run, states)
        self.requests: list[Request] = []
        self.replies: deque[Reply] = deque()
        self.open: set[int] = set()  # parts that are not computed yet
        self.parts: dict[int, Completion] = {}
        self.part_size = 0  # clients; 0: nothing has been submitted

    def send(self, request: Request) -> None:
        self.requests.append(request)

    def receive(self, timeout: float) -> Reply | None:
        if not self.part_size and self.requests:
            self.part_size = choose_part_size(len(self.requests), len(self.pool.actors), self.pool.capacity > 1)
            self._submit(range(-(-len(self.requests) // self.part_size)))
        while not self.replies and self.open:
            self._wait_completed()
        return self.replies.popleft() if self.replies else None

    def add(self, client: ClientId, reply: SummedTerm) -> None:
        """Do nothing: the term is part of the sum already."""

    def value(self) -> Weighted:
        for _ in range(self.pool.restarts + 1):
            while self.open:
                self._wait_completed()
            try:
                part: PartialSum = unpack(self.pool.fetch(self._reduce(self._blocks())))
                self.states.check()
                break
            except ray.exceptions.RayError as error:
                if isinstance(error, ray.exceptions.RayTaskError) and not is_loss(error.cause):
                    raise
                self._submit(self.parts)  # it is not known which parts were lost
                failure = error
        else:
            raise RunError(f"a sum was lost {self.pool.restarts + 1} times with its node: {first_line(failure)}")
        self.states.commit()
        self.parts.clear()
        self.pool.release()
        return PartialSum(part.sum and part.sum.to(self.setup.device), part.weight).mean()

    def _submit(self, indices: Sequence[int] | Any) -> None:
        self.open |= {*indices}
        for index in sorted(indices):
            requests = self.requests[index * self.part_size : (index + 1) * self.part_size]
            items = tuple(
                WorkItem(r.address, r.client, float(self.setup.client_size(r.client)) or 1.0) for r in requests
            )
            states = self.states.sources([request.client for request in requests])
            self.pool.submit(RemoteTask(items, partial(self._make_task, requests), index, states))

    def _make_task(self, requests: Sequence[Request]) -> PartialSumTask:
        payloads = {id(request.payload): request.payload for request in requests}
        places = {identity: place for place, identity in enumerate(payloads)}
        return PartialSumTask(
            run=self.setup.run,
            requests=tuple(replace(request, payload=places[id(request.payload)]) for request in requests),
            payloads=tuple(payloads.values()),
            limits=self.limits,
            is_summed=self.part_size > 1,
        )

    def _wait_completed(self) -> None:
        for completion in self.pool.wait_completed():
            if completion.error is not None:
                raise completion.error
            index = completion.task.key
            self.open.discard(index)
            self._record_seconds(completion.task.items, completion.report.seconds)
            self.pool.nodes[completion.actor] = completion.report.node
            self.states.take(completion)
            if index not in self.parts:  # else the part was repeated, and its replies are known
                self.replies += self._read_replies(completion)
            self.parts[index] = completion
        dead = [*self.pool.restarting.values()]
        self._submit([i for i, part in self.parts.items() if part.actor in dead and i not in self.open])

    def _record_seconds(self, items: Sequence[WorkItem], seconds: Sequence[float]) -> None:
        if self.pool.capacity == 1:
            self.pool.estimates.record(items, seconds)
        else:  # clients that were trained together finish together
            self.pool.estimates.record_total(items, sum(seconds))

    def _read_replies(self, completion: Completion) -> list[Reply]:
        report: PartialSumReport = completion.report
        self.pool.examples_processed += report.examples_processed
        start, replies = completion.task.key * self.part_size, []
        for request, term in zip(self.requests[start:], report.replies, strict=False):
            value = SummedTerm(MessageSize(term.payload_bytes, term.wire_bytes), term.problem)
            replies.append(Reply(request.id, request.client, value, term.error))
        return replies

    def _blocks(self) -> list[tuple[Any, Any]]:
        """Return the parts in order, each as a reference and an actor that is near. Single terms are added in blocks."""
        parts = [(self.parts[i].result, self._near(self.parts[i].actor)) for i in range(len(self.parts))]
        if self.part_size > 1:
            return parts
        limits, blocks = pack(self.limits), []
        for start in range(0, len(parts), BLOCK):
            actor = parts[start][1]
            references = [reference for reference, _ in parts[start : start + BLOCK]]
            blocks.append((actor.sum_block.remote(limits, *references), actor))
        return blocks

    def _reduce(self, parts: Sequence[tuple[Any, Any]]) -> Any:
        """Add parts in pairs on the actors, and return a reference to the sum."""
        if len(parts) == 1:
            return parts[0][0]
        half = 1 << (len(parts) - 1).bit_length() - 1
        actor = parts[0][1]
        return actor.add_parts.remote(self._reduce(parts[:half]), self._reduce(parts[half:]))

    def _near(self, actor: Any) -> Any:
        """Return the actor, or another one if it is not alive."""
        return actor if actor in self.pool.idle else self.pool.idle[0]


def choose_part_size(clients: int, actors: int, packs: bool) -> int:
    """Return how many clients are one task: 1, or a power of two of blocks, which are a subtree of the sum.

    Several serial actors need several parts each for an even load. One that packs clients, or is alone, only needs a part.
    """
    wanted = actors if packs or actors == 1 else PARTS_PER_ACTOR * actors
    if -(-clients // BLOCK) < wanted:
        return 1
    size = BLOCK
    while size < clients and -(-clients // (2 * size)) >= wanted:
        size *= 2
    return size
