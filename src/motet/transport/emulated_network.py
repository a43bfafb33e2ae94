"""An emulated network: how long a simulated run's messages would have taken over its clients' lines.

Nothing waits. A clock runs along: a request reaches its client after the delay and as soon as its bytes are through; the client
works; the reply comes back likewise; and the server asks its next question when the last reply is there. Clients do not share
a line, and the server's own is not the bottleneck.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from motet.core.errors import ConfigError
from motet.core.program import ClientList
from motet.core.script import ClientId
from motet.transport.requests import Reply, Request, Transport
from motet.wire import measure_size

T = TypeVar("T")


@dataclass(frozen=True)
class Bandwidth:
    """Megabits a second from each moment on, over and over; a single one is for ever."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]

    def through(self, start: float, size: int) -> float:
        """When so many bytes are through that began to move at `start`."""
        left, now, count = 8e-6 * size, start, len(self.starts)
        if count == 1:
            return now + left / self.rates[0]
        period = 2 * self.starts[-1] - self.starts[-2]  # the last rate lasts as long as the one before it
        turn = math.floor(start / period)
        index = bisect_right(self.starts, start - turn * period) - 1
        while True:
            end = turn * period + (self.starts[index + 1] if index + 1 < count else period)
            possible = self.rates[index] * max(0.0, end - now)
            if self.rates[index] and possible >= left:
                return now + left / self.rates[index]
            left, now = left - possible, max(now, end)
            turn, index = turn + (index + 1) // count, (index + 1) % count


@dataclass(frozen=True)
class LinkProfile:
    down: Bandwidth
    up: Bandwidth
    latency: float
    work: float


@dataclass(frozen=True)
class Network:
    """Megabits a second each way, seconds of delay, and of a client's work for a question: one for all, or dealt out in turn.

    `traces` are csv files with columns seconds, down, up: rates that change with time, over and over, in place of fixed ones.
    """

    down: tuple[float, ...] = (100.0,)
    up: tuple[float, ...] = (20.0,)
    latency: tuple[float, ...] = (0.02,)
    work: tuple[float, ...] = (0.0,)
    traces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("down", "up"):
            if any(not rate > 0 for rate in getattr(self, name)) or not getattr(self, name):
                raise ConfigError(
                    f"network.{name} is {list(getattr(self, name))}; expected megabits a second, above 0."
                )
        for name in ("latency", "work"):
            if any(not seconds >= 0 for seconds in getattr(self, name)) or not getattr(self, name):
                raise ConfigError(f"network.{name} is {list(getattr(self, name))}; expected seconds of at least 0.")

    def line(self, index: int) -> LinkProfile:
        """The line of the client with this place in the roster."""
        down, up = (Bandwidth((0.0,), (_turn(rates, index),)) for rates in (self.down, self.up))
        if self.traces:
            down, up = _turn(self._traced, index)
        return LinkProfile(down, up, _turn(self.latency, index), _turn(self.work, index))

    @cached_property
    def _traced(self) -> list[tuple[Bandwidth, Bandwidth]]:
        return [read_trace(Path(name)) for name in self.traces]


def _turn(items: Sequence[T], index: int) -> T:
    return items[index % len(items)]


def read_trace(path: Path) -> tuple[Bandwidth, Bandwidth]:
    """The rates down and up that a csv file tells."""
    if not path.exists():
        raise ConfigError(
            f"network.traces: there is no file '{path}'; expected a csv file with columns seconds, down, up."
        )
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [(float(r["seconds"]), float(r["down"]), float(r["up"])) for r in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"network.traces: {path} cannot be read ({error}); expected numbers: seconds, down, up."
        ) from None
    starts = tuple(row[0] for row in rows)
    if not rows or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise ConfigError(
            f"network.traces: seconds in {path} are {list(starts[:4])}…; they must begin with 0 and grow."
        )
    for name, column in (("down", 1), ("up", 2)):
        if min(row[column] for row in rows) < 0 or not max(row[column] for row in rows) > 0:
            raise ConfigError(f"network.traces: '{name}' in {path} must be at least 0, and above 0 at some time.")
    return Bandwidth(starts, tuple(r[1] for r in rows)), Bandwidth(starts, tuple(r[2] for r in rows))


class EmulatedTransport:
    """Another transport, and a clock that says how long its messages would have taken."""

    def __init__(self, transport: Transport, network: Network, clients: ClientList) -> None:
        self.transport, self.network = transport, network
        self.places = {client: index for index, client in enumerate(clients)}
        network.line(0)  # a trace that cannot be read is said before anything trains
        self.lines: dict[ClientId, LinkProfile] = {}
        self.arrived: dict[int, float] = {}  # when each request was at its client
        self.asked = self.heard = 0.0

    @property
    def seconds(self) -> float:
        return max(self.asked, self.heard)

    def start_at(self, seconds: float) -> None:
        self.asked = self.heard = seconds

    def send(self, request: Request) -> None:
        self.asked = self.seconds  # the server asks when it has heard all it waited for
        line = self._line(request.client)
        self.arrived[request.id] = line.down.through(self.asked + line.latency, measure_size(request).wire)
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None and reply.id in self.arrived:
            line = self._line(reply.client)
            ready = self.arrived.pop(reply.id) + line.work
            self.heard = max(self.heard, line.up.through(ready + line.latency, measure_size(reply).wire))
        return reply

    def close(self) -> None:
        self.transport.close()

    def _line(self, client: ClientId) -> LinkProfile:
        if client not in self.lines:
            self.lines[client] = self.network.line(self.places[client])
        return self.lines[client]
