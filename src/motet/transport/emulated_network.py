"""An emulated network: computes how long a simulation's messages would take over its clients' links.

Nothing waits. A virtual clock runs alongside: a request reaches its client after the latency and the transfer time, the
client works, and the reply takes the same way back. The server sends its next requests when the last reply has arrived.
Clients do not share a link, and the server's own link is not a bottleneck.

Devices and links may differ by log-normal factors. With a spread of 0.7, the 95th percentile is ten times the 5th: the
order of magnitude that Lai et al. (Oort, 2021) report for phones in AI Benchmark and for mobile links in MobiPerf.
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
from motet.missing_paths import describe_missing

T = TypeVar("T")


@dataclass(frozen=True)
class Bandwidth:
    """Megabits per second from each start time on, repeated periodically. A single rate is constant."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]

    def finish_time(self, start: float, size: int) -> float:
        """Return when a transfer of `size` bytes that begins at `start` is complete."""
        remaining, now, count = 8e-6 * size, start, len(self.starts)
        if count == 1:
            return now + remaining / self.rates[0]
        period = 2 * self.starts[-1] - self.starts[-2]  # the last rate lasts as long as the one before it
        cycle = math.floor(start / period)
        index = bisect_right(self.starts, start - cycle * period) - 1
        while True:
            end = cycle * period + (self.starts[index + 1] if index + 1 < count else period)
            capacity = self.rates[index] * max(0.0, end - now)
            if self.rates[index] and capacity >= remaining:
                return now + remaining / self.rates[index]
            remaining, now = remaining - capacity, max(now, end)
            cycle, index = cycle + (index + 1) // count, (index + 1) % count


@dataclass(frozen=True)
class LinkProfile:
    """One client's link, and the seconds that the client computes for a request."""

    down: Bandwidth
    up: Bandwidth
    latency: float
    compute_seconds: float


@dataclass(frozen=True)
class Network:
    """Megabits per second each way, seconds of latency, and seconds that a client computes for a request.

    Each option is one value for all clients, or several values that the clients take in turn. `traces` are CSV files
    with the columns seconds, down, up: rates that change over time, repeated periodically. They replace `down` and
    `up`.
    """

    down: tuple[float, ...] = (100.0,)  # megabits per second from the server
    up: tuple[float, ...] = (20.0,)  # megabits per second to the server
    latency: tuple[float, ...] = (0.02,)  # seconds per message
    compute_seconds: tuple[float, ...] = (0.0,)  # seconds that a client computes for a request
    example_seconds: float = 0.0  # additional seconds for each of a client's training examples
    device_spread: float = 0.0  # standard deviation of the logarithm of the clients' speeds
    link_spread: float = 0.0  # the same for the rates of their links; traces are not changed
    traces: tuple[str, ...] = ()  # CSV files with rates that change over time
    max_seconds: float | None = None  # the run ends with the round in which the virtual clock passes this; None: never

    def __post_init__(self) -> None:
        for name in ("down", "up"):
            rates = getattr(self, name)
            if not rates or any(not rate > 0 for rate in rates):
                raise ConfigError(f"network.{name} is {list(rates)}; expected megabits per second, above 0.")
        for name in ("example_seconds", "device_spread", "link_spread"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"network.{name} is {getattr(self, name)}; expected a number of at least 0.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"network.max_seconds is {self.max_seconds}; expected virtual seconds, above 0.")
        for name in ("latency", "compute_seconds"):
            times = getattr(self, name)
            if not times or any(not seconds >= 0 for seconds in times):
                raise ConfigError(f"network.{name} is {list(times)}; expected seconds of at least 0.")

    def link_profile(self, index: int, examples: int = 0, draws: tuple[float, float] = (0.0, 0.0)) -> LinkProfile:
        """Return the link and the computing time of the client at this position in the client list, with this many examples.

        `draws` are standard normal numbers for its device and its link.
        """
        device, link = math.exp(draws[0] * self.device_spread), math.exp(draws[1] * self.link_spread)
        if self.traces:
            down, up = _cycle(self._bandwidth_traces, index)
        else:
            down, up = (Bandwidth((0.0,), (_cycle(rates, index) * link,)) for rates in (self.down, self.up))
        seconds = (_cycle(self.compute_seconds, index) + examples * self.example_seconds) / device
        return LinkProfile(down=down, up=up, latency=_cycle(self.latency, index), compute_seconds=seconds)

    @cached_property
    def _bandwidth_traces(self) -> list[tuple[Bandwidth, Bandwidth]]:
        return [read_trace(Path(name)) for name in self.traces]


def _cycle(items: Sequence[T], index: int) -> T:
    return items[index % len(items)]


def read_trace(path: Path) -> tuple[Bandwidth, Bandwidth]:
    """Read the rates down and up from a CSV file."""
    if not path.exists():
        raise ConfigError(
            f"network.traces: {describe_missing(path)} Expected a CSV file with columns seconds, down, up."
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
            f"network.traces: the seconds in {path} are {list(starts[:4])}…; they must start at 0 and increase."
        )
    for name, column in (("down", 1), ("up", 2)):
        if min(row[column] for row in rows) < 0 or not max(row[column] for row in rows) > 0:
            raise ConfigError(f"network.traces: '{name}' in {path} must be at least 0, and above 0 at some time.")
    return Bandwidth(starts, tuple(r[1] for r in rows)), Bandwidth(starts, tuple(r[2] for r in rows))
