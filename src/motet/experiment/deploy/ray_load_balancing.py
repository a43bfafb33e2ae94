"""Spreads clients over actors by how long they will take, which is estimated from how long they took."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeVar

MAX_MEASURED = 100_000  # clients whose times are kept; those that were measured first are forgotten first


class WorkItem(NamedTuple):
    """The work of one client. Times are compared within a kind, such as a client method."""

    kind: str
    client: Hashable
    amount: float  # examples times epochs; used until the client has been measured


class TimeEstimates:
    """Estimates seconds. A client takes as long as the last time; a new one as long as others with as much work."""

    def __init__(self) -> None:
        self.measured: dict[tuple[str, Hashable], float] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.amounts: defaultdict[str, float] = defaultdict(float)

    def estimate(self, items: Sequence[WorkItem]) -> float:
        return sum(self._estimate_item(item) for item in items)

    def _estimate_item(self, item: WorkItem) -> float:
        known = self.measured.get((item.kind, item.client))
        if known is not None:
            return known
        total = self.amounts[item.kind]
        return item.amount * (self.seconds[item.kind] / total if total else 1.0)

    def record(self, items: Sequence[WorkItem], seconds: Sequence[float]) -> None:
        for item, duration in zip(items, seconds, strict=True):
            self.measured[item.kind, item.client] = duration
            self.seconds[item.kind] += duration
            self.amounts[item.kind] += item.amount
        while len(self.measured) > MAX_MEASURED:
            del self.measured[next(iter(self.measured))]

    def record_total(self, items: Sequence[WorkItem], seconds: float) -> None:
        """Divide the time of clients that were trained together by their amounts of work."""
        total = sum(item.amount for item in items)
        shares = [item.amount / total if total else 1 / len(items) for item in items]
        self.record(items, [seconds * share for share in shares])


class HasWork(Protocol):
    """A task for an actor: the work of one client or of several."""

    @property
    def items(self) -> Sequence[WorkItem]: ...


T = TypeVar("T", bound=HasWork)
QueuedTask = tuple[float, int, T]  # negative cost and number: in a heap, the longest task comes first


def spread(queue: list[QueuedTask[T]], idle: int, actors: int, capacity: int) -> list[list[T]]:
    """Take the longest tasks from a heap for the `idle` ones of all `actors`, each for the actor with the least to do.

    An actor gets tasks with at most `capacity` clients, and not much more than its share of what is queued: the others
    will be idle soon.
    """
    fair_share = -sum(cost for cost, _, _ in queue) / actors * (1 - 1e-9)
    batches: list[list[T]] = [[] for _ in range(idle)]
    loads = [(0.0, index) for index in range(idle)]
    while queue and loads:
        load, index = heapq.heappop(loads)
        cost, _, task = heapq.heappop(queue)
        batches[index].append(task)
        clients = sum(len(each.items) for each in batches[index])
        if clients < capacity and load - cost < fair_share:
            heapq.heappush(loads, (load - cost, index))
    return batches
