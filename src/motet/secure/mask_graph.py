"""Who shares masks with whom: everybody with everybody, or with the neighbours on a ring that nobody chose (Bell et al. 2020).

The ring's order follows from the keys that all have announced, so a server cannot seat a client among its own people, and
every client knows the whole graph and can see for itself that those who are left are connected.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.secure.participants import SumParticipants

FAILURE_PROBABILITY = 1e-5  # how probable it may be that a round with that many drop-outs cannot be opened


@dataclass(frozen=True)
class CompleteGraph:
    """Everybody is everybody's neighbour."""

    def holders(self, circle: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        """Who holds shares of this client's secrets, itself among them."""
        return circle.members

    def fewest(self, clients: int, threshold: float) -> int:
        return threshold_count(clients, threshold)


@dataclass(frozen=True)
class RingGraph:
    """Neighbours are the next few on either side. None: the fewest that stand a share `dropouts` of lost clients."""

    neighbours: int | None
    dropouts: float
    threshold: float

    def __post_init__(self) -> None:
        if self.neighbours is not None and (self.neighbours < 2 or self.neighbours % 2):
            raise ConfigError(
                f"secure.neighbours is {self.neighbours}; it is an even number of at least 2, or left out."
            )
        if not 0 <= self.dropouts < 1 - self.threshold:
            raise ConfigError(
                f"secure.dropouts is {self.dropouts:g}; with secure.threshold={self.threshold:g} it must be below "
                f"{1 - self.threshold:g}, or too few would be left to open a sum."
            )

    def fewest(self, clients: int, threshold: float) -> int:
        """A client's neighbours do not see how many are left elsewhere, so what the ring is made to stand is the measure."""
        return clients - _lost(clients, self.dropouts)

    def holders(self, circle: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        order = circle.seats
        count = len(order)
        degree = self.neighbours or choose_degree(count, self.dropouts, self.threshold)
        if degree >= count - 1:
            return circle.members
        seat = order[client]
        reach = degree // 2
        return tuple(c for c, k in order.items() if min((k - seat) % count, (seat - k) % count) <= reach)


def threshold_count(holders: int, threshold: float) -> int:
    """How many of a client's holders must answer: more than the share `threshold` of them, which is at least a half."""
    return min(holders, math.floor(threshold * holders + 1e-9) + 1)


def _lost(clients: int, dropouts: float) -> int:
    return math.ceil(dropouts * clients - 1e-9)


@cache
def choose_degree(clients: int, dropouts: float, threshold: float) -> int:
    """The smallest even degree at which losing a share of all clients leaves every neighbourhood enough, but for `FAILURE_PROBABILITY`."""
    lost = _lost(clients, dropouts)
    for degree in range(2, clients, 2):
        size = degree + 1
        # of one neighbourhood more are lost than it can spare; over all of them by the union bound
        spare = size - threshold_count(size, threshold)
        ways = sum(
            math.comb(lost, k) * math.comb(clients - lost, size - k) for k in range(spare + 1, min(lost, size) + 1)
        )
        if clients * ways / math.comb(clients, size) <= FAILURE_PROBABILITY:
            return degree
    return clients - 1


def is_connected(graph: CompleteGraph | RingGraph, circle: SumParticipants, alive: Collection[ClientId]) -> bool:
    """Whether those left share masks in one piece; in two pieces, the server would learn two sums."""
    left, edge = set(alive), [next(iter(alive))] if alive else []
    left -= set(edge)
    while edge:
        near = left & set(graph.holders(circle, edge.pop()))
        left -= near
        edge += near
    return not left
