"""Ask clients over a transport and fold their replies: the one place that waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from motet.codecs.channel import Channel
from motet.core.errors import ConfigError, RunError
from motet.core.messages import message
from motet.core.script import ClientId, Exchange
from motet.transport.messages import Reply, Request, Transport
from motet.wire import measure


@dataclass(frozen=True)
class Patience:
    """For whom to wait, how long, and what to do about a client that fails."""

    quorum: float = 1.0  # the share of the cohort without which a question fails
    timeout: float = 3600.0  # seconds to wait for the next reply
    on_error: Literal["fail", "drop"] = "fail"

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ConfigError(f"patience.quorum is {self.quorum}; it is a share of the cohort, above 0 and at most 1.")
        if not self.timeout > 0:
            raise ConfigError(f"patience.timeout is {self.timeout}; it is a number of seconds above 0.")


@message
@dataclass
class Traffic:
    """Bytes of tensors, and of whole messages, each way; and how many requests were sent, which numbers them.

    `network_seconds` is how long it would all have taken over an emulated network.
    """

    requests: int = 0
    payload_up: int = 0
    payload_down: int = 0
    wire_up: int = 0
    wire_down: int = 0
    network_seconds: float = 0.0


@dataclass
class Mailbox:
    """Replies are folded in the order of the clients' names, whatever order they come in: the sum is the same to the bit."""

    transport: Transport
    patience: Patience = Patience()
    channel: Channel = Channel()
    traffic: Traffic = field(default_factory=Traffic)
    round: int = 0
    watch: Callable[[str, ClientId, int, int], None] = lambda address, client, seen, asked: None
    lost: list[tuple[int, ClientId, str]] = field(default_factory=list)  # round, client and why

    def ask(self, exchange: Exchange) -> Any:
        order = sorted(exchange.payloads)
        places: dict[int, int] = {}
        coded: dict[int, Any] = {}
        for place, client in enumerate(order):
            payload = exchange.payloads[client]
            if id(payload) not in coded:  # what goes to all is coded once
                seed = self.channel.seed.of("down", self.round, exchange.address, client)
                coded[id(payload)] = self.channel.down.encode(payload, seed)
            number = self.traffic.requests + 1
            self._send(Request(number, client, self.round, exchange.address, coded[id(payload)]))
            places[number] = place
        collector, early = exchange.collector(), dict[int, Reply]()
        enough = math.ceil(self.patience.quorum * len(order) - 1e-9)
        folded = good = seen = 0
        while seen < len(order):
            reply = self.transport.receive(self.patience.timeout)
            if reply is None:
                break
            if reply.id not in places:
                continue  # an answer to an earlier question
            seen += 1
            self._count(reply)
            self.watch(exchange.address, reply.client, seen, len(order))
            early[places.pop(reply.id)] = reply
            while folded in early:
                good += self._fold(collector, early.pop(folded), exchange)
                folded += 1
        for place in sorted(early):  # some before them never came
            good += self._fold(collector, early[place], exchange)
        self.lost += [(self.round, order[place], "did not answer") for place in places.values()]
        if good < enough:
            raise RunError(
                f"{exchange.address}, round {self.round}: {good} of {len(order)} clients answered and {enough} are needed. "
                f"{self._reasons()}Lower patience.quorum, or raise patience.timeout ({self.patience.timeout:g} s)."
            )
        return collector.value()

    def _send(self, request: Request) -> None:
        self.traffic.requests = request.id
        size = measure(request)
        self.traffic.payload_down += size.payload
        self.traffic.wire_down += size.wire
        self.transport.send(request)

    def _count(self, reply: Reply) -> None:
        size = measure(reply)
        self.traffic.payload_up += size.payload
        self.traffic.wire_up += size.wire

    def _fold(self, collector: Any, reply: Reply, exchange: Exchange) -> int:
        if reply.error is None:
            collector.add(reply.client, self.channel.up.decode(reply.value))
            return 1
        if self.patience.on_error == "fail":
            raise RunError(f"{reply.error} (in {exchange.address}; to go on without such clients: patience.on_error=drop)")
        self.lost.append((self.round, reply.client, reply.error))
        return 0

    def _reasons(self) -> str:
        here = [f"{client}: {why}" for round, client, why in self.lost if round == self.round]
        return f"First failure: {here[0]} " if here else ""
