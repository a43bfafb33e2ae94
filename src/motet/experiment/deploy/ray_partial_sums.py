"""Runs requests on an actor, and sums their replies there. The driver only learns what it must know about each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.codecs.chain import Channel, map_leaves
from motet.core.messages import message
from motet.core.params import Params
from motet.core.script import ClientId
from motet.core.weighted import PartialSum, RunningSum, TermLimits, Weighted
from motet.core.work import Executor
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation import Federation
from motet.experiment.build.optimizer_keeping import keep_optimizers
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import StateKey
from motet.transport.reorder_buffer import ReorderBuffer
from motet.transport.reply_validation import INVALID_REPLY, TermChecker
from motet.transport.requests import Reply, Request
from motet.wire import MessageSize, measure_size


@message
@dataclass(frozen=True, eq=False)
class PartialSumTask:
    """Consecutive clients of a cohort whose replies are terms of a sum.

    `requests` have the index of their payload in `payloads`. With `is_summed`, the result is their sum; else the terms.
    """

    run: str  # digest of the configuration
    requests: tuple[Request, ...]
    payloads: tuple[Any, ...]
    limits: TermLimits
    is_summed: bool


@message
@dataclass(frozen=True, eq=False)
class ReplyReport:
    """What the driver learns about one reply: its size, and why it is missing in the sum."""

    payload_bytes: int
    wire_bytes: int
    error: str | None = None
    problem: str | None = None  # the reply is invalid


@message
@dataclass(frozen=True, eq=False)
class PartialSumReport:
    """What the driver learns about a task. `states` are the (program, client) of new client states.

    Examples belong to all tasks that ran together; the first report has them.
    """

    replies: tuple[ReplyReport, ...]
    seconds: tuple[float, ...]
    states: tuple[Any, ...] = ()
    examples_processed: int = 0
    node: str = ""  # where the task ran


PartialSumResult = PartialSum | tuple[Weighted | None, ...]
LoadState = Callable[[], Any]


class TaskStates:
    """The client states that the tasks of an actor read and write. One is loaded when its client reads it."""

    def __init__(self) -> None:
        self.loaders: Mapping[StateKey, LoadState] = {}
        self.new: dict[StateKey, Any] = {}  # until `take`

    def begin(self, loaders: Mapping[StateKey, LoadState]) -> None:
        """Start tasks with these states."""
        self.loaders = loaders
        self.new.clear()

    def get(self, program: str, client: ClientId) -> Any:
        key = (program, client)
        if key in self.new:
            return self.new[key]
        return self.loaders[key]() if key in self.loaders else None

    def put(self, program: str, client: ClientId, value: Any) -> None:
        self.new[program, client] = value

    def take(self, keys: Iterable[StateKey]) -> list[Any]:
        """Remove and return new states."""
        return [self.new.pop(key) for key in keys]


class PartialSumRunner:
    """Runs the client methods of one run."""

    def __init__(self, runtime: ClientRuntime, states: TaskStates) -> None:
        self.runtime, self.states = runtime, states

    @staticmethod
    def build(config: RunConfig, federation: Federation, executor: Executor) -> PartialSumRunner:
        components, states = build_components(config), TaskStates()
        runtime = ClientRuntime(
            components.client_programs,
            keep_optimizers(federation.context, states, components.algorithm, config.rounds),
            executor,
            states,
            components.channel,
            required_wrappers=components.required_wrappers,
        )
        return PartialSumRunner(runtime, states)

    def run(
        self, tasks: Sequence[PartialSumTask], states: Mapping[StateKey, LoadState] = {}
    ) -> list[tuple[PartialSumReport, PartialSumResult]]:
        """Run the requests of all tasks together, so that the executor can pack them. New states wait in `states`."""
        self.states.begin(states)
        early = ReorderBuffer()  # one for all tasks, so that it bounds the memory of the actor
        sums = [TaskSum(task, self.runtime.channel, early) for task in tasks]
        by_request = {request.id: term_sum for term_sum in sums for request in term_sum.task.requests}
        start, examples_before = time.perf_counter(), self.runtime.executor.examples_processed
        for reply in self.runtime.answer_requests(request for task in tasks for request in self._full_requests(task)):
            end = time.perf_counter()
            by_request[reply.id].take(reply, end - start)
            start = end
        self.states.loaders = {}
        examples = self.runtime.executor.examples_processed - examples_before
        return [self._finish(term_sum, 0 if k else examples) for k, term_sum in enumerate(sums)]

    def _finish(self, term_sum: TaskSum, examples: int) -> tuple[PartialSumReport, PartialSumResult]:
        report, result = term_sum.finish()
        clients = {request.client for request in term_sum.task.requests}
        states = tuple(key for key in self.states.new if key[1] in clients)
        return replace(report, states=states, examples_processed=examples), result

    def _full_requests(self, task: PartialSumTask) -> Iterator[Request]:
        """Yield the requests with their payloads, which are decoded and moved to the device once for all clients."""
        payloads = [self._load(payload) for payload in task.payloads]
        return (replace(request, payload=payloads[request.payload]) for request in task.requests)

    def _load(self, payload: Any) -> Any:
        device = self.runtime.executor.device
        decoded = self.runtime.channel.down.decode(payload)
        return map_leaves(decoded, lambda leaf: leaf.to(device) if isinstance(leaf, Params) else leaf)


class TaskSum:
    """Adds the replies of one task in the order of its requests, as soon as their turn comes. Others wait in `early`."""

    def __init__(self, task: PartialSumTask, channel: Channel, early: ReorderBuffer) -> None:
        self.task, self.channel, self.early = task, channel, early
        self.sizes: dict[int, MessageSize] = {}
        self.seconds: dict[int, float] = {}
        self.reports: list[ReplyReport] = []
        self.checker, self.sum = TermChecker(), RunningSum(task.limits)
        self.terms: list[Weighted | None] = []

    def take(self, reply: Reply, seconds: float) -> None:
        self.sizes[reply.id], self.seconds[reply.id] = measure_size(reply), seconds
        self.early.put(reply.id, reply, self.sizes[reply.id].payload)
        requests = self.task.requests
        while len(self.reports) < len(requests) and (turn := requests[len(self.reports)].id) in self.early:
            self._add(self.early.take(turn))

    def finish(self) -> tuple[PartialSumReport, PartialSumResult]:
        seconds = tuple(self.seconds[request.id] for request in self.task.requests)
        report = PartialSumReport(tuple(self.reports), seconds)
        return report, self.sum.part() if self.task.is_summed else tuple(self.terms)

    def _add(self, reply: Reply) -> None:
        size, term, problem = self.sizes[reply.id], None, None
        if reply.error is None:
            try:
                term = self.checker.check(self.channel.up.decode(reply.value))
            except INVALID_REPLY as invalid:
                problem = str(invalid)
        self.reports.append(ReplyReport(size.payload, size.wire, reply.error, problem))
        if self.task.is_summed:
            add_term(self.sum, reply.client, term)
        else:
            self.terms.append(term)


def add_term(running_sum: RunningSum, client: ClientId, term: Weighted | None) -> None:
    """Add a term to a sum, or keep the place of a client that failed."""
    if term is None:
        running_sum.skip()
    else:
        running_sum.add(client, term)


def sum_terms(terms: Sequence[Weighted | None], limits: TermLimits) -> PartialSum:
    """Return the sum of terms that were computed in several places."""
    running_sum = RunningSum(limits)
    for term in terms:
        add_term(running_sum, "", term)
    return running_sum.part()
