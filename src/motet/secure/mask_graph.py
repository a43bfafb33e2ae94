"""Which clients share masks: all with all, or each with its neighbors on a ring (Bell et al. 2020).

Nobody can choose the order of the ring. It follows from the keys of all clients, so a server cannot place a client
among colluding ones. Every client knows the whole graph, and can check that the survivors are connected.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.secure.participants import SumParticipants

FAILURE_PROBABILITY = 1e-5  # of a sum with the configured share of dropouts


@dataclass(frozen=True)
class CompleteGraph:
    """Every client is a neighbor of every other."""

    def share_holders(self, participants: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        """Return the clients that hold shares of this client's secrets, including itself."""
        return participants.clients

    def min_survivors(self, clients: int, threshold: float) -> int:
        return threshold_count(clients, threshold)


@dataclass(frozen=True)
class RingGraph:
    """The neighbors are the next few clients on either side.

    `neighbors` is their number, None for the smallest that tolerates the share `dropouts` of lost clients.
    """

    neighbors: int | None
    dropouts: float
    threshold: float

    def __post_init__(self) -> None:
        if self.neighbors is not None and (self.neighbors < 2 or self.neighbors % 2):
            raise ConfigError(
                f"secure.neighbors is {self.neighbors}; expected an even number of at least 2. Leave it out to choose it "
                "from secure.dropouts."
            )
        if not 0 <= self.dropouts < 1 - self.threshold:
            raise ConfigError(
                f"secure.dropouts is {self.dropouts:g}; with secure.threshold={self.threshold:g} it must be below "
                f"{1 - self.threshold:g}, or too few clients would be left to open a sum."
            )

    def min_survivors(self, clients: int, threshold: float) -> int:
        """Return how many survivors the ring is built for. No neighborhood sees how many clients are left elsewhere."""
        return clients - _dropout_count(clients, self.dropouts)

    def share_holders(self, participants: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        positions = participants.ring_positions
        count = len(positions)
        degree = self.neighbors or choose_degree(count, self.dropouts, self.threshold)
        if degree >= count - 1:
            return participants.clients
        center, reach = positions[client], degree // 2
        return tuple(c for c, k in positions.items() if min((k - center) % count, (center - k) % count) <= reach)


def threshold_count(holders: int, threshold: float) -> int:
    """Return how many share holders must answer: more than the share `threshold`, which is at least one half."""
    return min(holders, math.floor(threshold * holders + 1e-9) + 1)


def _dropout_count(clients: int, dropouts: float) -> int:
    return math.ceil(dropouts * clients - 1e-9)


@cache
def choose_degree(clients: int, dropouts: float, threshold: float) -> int:
    """Return the smallest even degree at which every neighborhood keeps enough clients after the dropouts.

    The probability that one does not is at most `FAILURE_PROBABILITY`.
    """
    lost = _dropout_count(clients, dropouts)
    for degree in range(2, clients, 2):
        size = degree + 1
        tolerated = size - threshold_count(size, threshold)
        # Hypergeometric tail: one neighborhood loses more than it tolerates. Over all of them, by the union bound.
        bad_choices = sum(
            math.comb(lost, k) * math.comb(clients - lost, size - k) for k in range(tolerated + 1, min(lost, size) + 1)
        )
        if clients * bad_choices / math.comb(clients, size) <= FAILURE_PROBABILITY:
            return degree
    return clients - 1


def is_connected(
    graph: CompleteGraph | RingGraph, participants: SumParticipants, survivors: Collection[ClientId]
) -> bool:
    """Check that the survivors form one connected component. With two, the server would learn two sums."""
    unvisited, frontier = set(survivors), [next(iter(survivors))] if survivors else []
    unvisited -= set(frontier)
    while frontier:
        neighbors = unvisited & set(graph.share_holders(participants, frontier.pop()))
        unvisited -= neighbors
        frontier += neighbors
    return not unvisited
