"""Ask clients over a transport and fold their replies: the one place that waits."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from motet.codecs.chain import Channel
from motet.core.errors import MotetError, RunError
from motet.core.messages import message
from motet.core.script import ClientId, Exchange
from motet.core.weighted import RunningSum, Weighted
from motet.transport.reorder_buffer import ReorderBuffer
from motet.transport.reply_validation import check_finite, check_sum_term
from motet.transport.requests import Reply, Request, Transport
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size


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


class PendingRequest(NamedTuple):
    """A question that may still be answered."""

    client: ClientId
    round: int
    address: str


@dataclass
class Mailbox:
    """Replies are folded in the order of the clients' names, whatever order they come in: the sum is the same to the bit."""

    transport: Transport
    wait_policy: WaitPolicy = WaitPolicy()
    channel: Channel = Channel()
    traffic: Traffic = field(default_factory=Traffic)
    round: int = 0
    watch: Callable[[str, ClientId, int, int], None] = lambda address, client, seen, asked: None
    lost: list[tuple[int, ClientId, str]] = field(default_factory=list)  # round, client and why
    refused: Counter[ClientId] = field(default_factory=Counter)  # replies that were not fit to be used
    settled: int = 0  # requests up to this number are in a checkpoint
    step: int = 1  # −1 in a mailbox beside another, so that the two never give the same number
    open: dict[int, PendingRequest] = field(default_factory=dict)  # late, and still worth something
    late: list[Reply] = field(default_factory=list)  # came while another mailbox was listening

    def beside(self) -> Mailbox:
        """Another mailbox on the same transport, with its own traffic: it takes in what is late for this one."""
        wait_policy = replace(self.wait_policy, staleness_exponent=None)
        return Mailbox(self.transport, wait_policy, step=-self.step, lost=self.lost, open=self.open, late=self.late)

    def ask(self, exchange: Exchange) -> Any:
        asking = _Asking(exchange, math.ceil(self.wait_policy.quorum * len(exchange.payloads) - 1e-9))
        busy = (
            {asked.client for asked in self.open.values()} if self.wait_policy.staleness_exponent is not None else set()
        )
        self._send_all(exchange, asking, [client for client in sorted(exchange.payloads) if client not in busy])
        for reply in self._coming(asking):
            self._take(asking, reply)
        for place in asking.waiting.places():  # some before them never came, or they are late
            self._fold(asking, asking.waiting.take(place), place)
        self._give_up(asking)
        if asking.good < asking.enough:
            raise RunError(
                f"{exchange.address}, round {self.round}: {asking.good} of {len(exchange.payloads)} clients answered and "
                f"{asking.enough} are needed. {self._reasons()}"
                f"Lower wait_policy.quorum, or raise wait_policy.timeout ({self.wait_policy.timeout:g} s)."
            )
        return asking.collector.value()

    def _send_all(self, exchange: Exchange, asking: _Asking, order: list[ClientId]) -> None:
        coded: dict[int, Any] = {}
        for client in order:
            payload = exchange.payloads[client]
            if id(payload) not in coded:  # what goes to all is coded once
                seed = self.channel.seed.derive("down", self.round, exchange.address, client)
                coded[id(payload)] = self.channel.down.encode(payload, seed)
            self.traffic.requests += 1
            number = self.step * self.traffic.requests
            asking.places[number] = client
            request = Request(number, client, self.round, exchange.address, coded[id(payload)])
            size = measure_size(request)
            self.traffic.payload_down += size.payload
            self.traffic.wire_down += size.wire
            # added after measuring: when checkpoints are written must not show in what a run counts
            self.transport.send(replace(request, settled=self.settled))
        asking.turns = order

    def _coming(self, asking: _Asking) -> Iterator[Reply]:
        """Replies, until all have come that are waited for, or the wait policy gives up."""
        until = math.inf if self.wait_policy.deadline is None else time.monotonic() + self.wait_policy.deadline
        while not (self.wait_policy.eager and asking.answered >= asking.enough):
            if not asking.places and (asking.answered >= asking.enough or not self._owed(asking)):
                return
            if self.late and self.step > 0:
                yield self.late.pop(0)
                continue
            left = min(self.wait_policy.timeout, until - time.monotonic())
            reply = self.transport.receive(left) if left > 0 else None
            if reply is None:
                return
            yield reply

    def _owed(self, asking: _Asking) -> bool:
        """Is there an earlier question of this kind that may yet be answered?"""
        return any(asked.address == asking.exchange.address for asked in self.open.values())

    def _take(self, asking: _Asking, reply: Reply) -> None:
        if reply.id in asking.places:
            place = (asking.places.pop(reply.id), 0)
        elif reply.id in self.open and self.step < 0:
            self.late.append(reply)
            return
        elif reply.id in self.open and self.open[reply.id].address == asking.exchange.address:
            place = (self.open[reply.id].client, reply.id)
        else:  # an answer nobody waits for any more
            self.open.pop(reply.id, None)
            return
        size = measure_size(reply)
        self.traffic.payload_up += size.payload
        self.traffic.wire_up += size.wire
        asking.answered += reply.error is None
        asking.waiting.put(place, reply, size.payload)
        self.watch(asking.exchange.address, reply.client, len(asking.turns) - len(asking.places), len(asking.turns))
        while not self.wait_policy.eager and (turn := asking.turn) is not None and turn in asking.waiting:
            asking.folded += 1
            self._fold(asking, asking.waiting.take(turn), turn)

    def _fold(self, asking: _Asking, reply: Reply, place: tuple[ClientId, int]) -> None:
        asked = self.open.pop(place[1], None)
        worth = 1.0 if asked is None else self.wait_policy.counts(self.round - asked.round)
        error = reply.error
        if error is None:
            try:
                asking.add(reply.client, self.channel.up.decode(reply.value), worth)
                return
            except (MotetError, ArithmeticError, RuntimeError, TypeError, AttributeError) as wrong:
                self.refused[reply.client] += 1
                error = f"{reply.client}: {wrong}"
        if self.wait_policy.on_error == "fail":
            raise RunError(
                f"{error} (in {asking.exchange.address}; to go on without such clients: wait_policy.on_error=drop)"
            )
        self.lost.append((self.round, reply.client, error))

    def _give_up(self, asking: _Asking) -> None:
        """Who has not answered is late, if that is still worth something, or lost."""
        hope = self.wait_policy.staleness_exponent is not None and asking.exchange.reads == "sum"
        for number, client in asking.places.items():
            if hope:
                self.open[number] = PendingRequest(client, self.round, asking.exchange.address)
            else:
                self.lost.append((self.round, client, "did not answer"))

    def _reasons(self) -> str:
        here = [f"{client}: {why}" for round, client, why in self.lost if round == self.round]
        return f"First failure: {here[0]} " if here else ""


class _Asking:
    """One question under way: who has still to answer, and what came before its turn."""

    def __init__(self, exchange: Exchange, enough: int) -> None:
        self.exchange, self.enough = exchange, enough
        self.collector = exchange.collector()
        self.waiting = ReorderBuffer()
        self.places: dict[int, ClientId] = {}
        self.turns: list[ClientId] = []
        self.folded = self.answered = self.good = 0

    @property
    def turn(self) -> tuple[ClientId, int] | None:
        return (self.turns[self.folded], 0) if self.folded < len(self.turns) else None

    def add(self, client: ClientId, value: Any, worth: float) -> None:
        if isinstance(self.collector, RunningSum):
            value = check_sum_term(value, self.collector.sum)
        else:
            check_finite(value)
        if worth != 1 and isinstance(value, Weighted):
            value = value.scale_weight(worth)
        self.collector.add(client, value)
        self.good += 1
