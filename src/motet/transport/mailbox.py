"""Runs exchanges: sends requests to clients, waits for their replies, and collects them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from motet.codecs.chain import Channel
from motet.core.errors import SESSION_LOST, RunError
from motet.core.script import ClientId, Collector, Exchange
from motet.core.weighted import RunningSum, Weighted
from motet.transport.reorder_buffer import ReorderBuffer
from motet.transport.reply_validation import INVALID_REPLY, TermChecker, check_finite, split_utility
from motet.transport.requests import Reply, Request, SummedTerm, SummingTransport, Transport
from motet.transport.traffic import Traffic
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size


class PendingRequest(NamedTuple):
    """A request of an earlier exchange; its reply is late, but still counts."""

    client: ClientId
    round: int
    address: str


class ClientFailure(NamedTuple):
    round: int
    client: ClientId
    reason: str


class Observation(NamedTuple):
    """What a round shows about a client: the utility of its last training, if it reports one, and how long it took."""

    utility: float
    seconds: float


@dataclass
class Mailbox:
    """Sends requests and collects replies. `durations` has the seconds that the last reply of each client took.

    Replies are collected in the order of the clients' names, not in the order of arrival, so that a sum is reproducible
    to the bit.
    """

    transport: Transport
    wait_policy: WaitPolicy = WaitPolicy()
    channel: Channel = Channel()
    traffic: Traffic = field(default_factory=Traffic)
    round: int = 0
    on_reply: Callable[[int, int], None] = lambda received, expected: None
    failures: list[ClientFailure] = field(default_factory=list)
    rejected: Counter[ClientId] = field(default_factory=Counter)  # invalid replies
    lost_sessions: int = 0  # replies of clients that no longer knew the secure sum
    last_checkpointed: int = 0  # requests up to this ID are covered by a checkpoint
    id_sign: int = 1  # -1 for a sibling, so that two mailboxes on one transport never use the same request ID
    pending: dict[int, PendingRequest] = field(default_factory=dict)  # late requests by ID
    late_replies: list[Reply] = field(default_factory=list)  # received while a sibling was waiting
    durations: Mapping[ClientId, float] = field(default_factory=dict)
    replied: dict[ClientId, Observation] = field(default_factory=dict)  # clients whose replies count in this round

    def create_sibling(self, *, waits_for_all: bool) -> Mailbox:
        """Return a second mailbox on the same transport, with its own traffic. It passes late replies on to this one.

        With `waits_for_all`, it waits for every client, even if this one stops at the quorum.
        """
        stop_at_quorum = self.wait_policy.stop_at_quorum and not waits_for_all
        return Mailbox(
            self.transport,
            replace(self.wait_policy, stop_at_quorum=stop_at_quorum, staleness_exponent=None, buffer=None),
            id_sign=-self.id_sign,
            failures=self.failures,
            pending=self.pending,
            late_replies=self.late_replies,
        )

    def start_round(self, round: int) -> None:
        """Send the requests that follow as part of a round."""
        self.round, self.replied = round, {}

    def finish_round(self, network_seconds: float) -> Traffic:
        """Set the time on an emulated network, and return a copy of the traffic so far."""
        self.traffic.network_seconds = network_seconds
        return replace(self.traffic)

    def continue_from(self, traffic: Traffic) -> None:
        """Continue to count traffic and requests from an earlier point of the run."""
        self.traffic = replace(traffic)

    def mark_checkpointed(self, request_id: int) -> None:
        """Tell clients with the next requests that a checkpoint covers the requests up to this one."""
        self.last_checkpointed = request_id

    def run_exchange(self, exchange: Exchange) -> Any:
        """Send an exchange's requests, wait for the replies, and return the collected value."""
        exchange.on_start()
        quorum = self.wait_policy.buffer or math.ceil(self.wait_policy.quorum * len(exchange.payloads) - 1e-9)
        state, busy = _ExchangeState(exchange, self._choose_collector(exchange), quorum), self.busy_clients
        self._send_requests(state, [client for client in sorted(exchange.payloads) if client not in busy])
        for reply in self._receive_replies(state):
            self._take_reply(state, reply)
        for position in state.early.positions():  # replies after a missing client, and late ones
            self._collect(state, state.early.take(position), position)
        self._close_exchange(state)
        if state.collected < state.quorum:
            raise RunError(
                f"{exchange.address}, round {self.round + 1}: {state.collected} of {len(exchange.payloads)} clients replied; "
                f"{state.quorum} are needed. {self._describe_first_failure()}"
                f"Lower wait_policy.quorum, or raise wait_policy.timeout ({self.wait_policy.timeout:g} s)."
            )
        return state.collector.value()

    def _choose_collector(self, exchange: Exchange) -> Collector:
        """Return what collects the replies. A transport may sum them itself if the exchange waits for all of them."""
        waits_for_all = not (self._stops_at_quorum or self._accepts_late_replies) and self.wait_policy.deadline is None
        if waits_for_all and isinstance(self.transport, SummingTransport):
            return self.transport.choose_collector(exchange.collector())
        return exchange.collector()

    @property
    def busy_clients(self) -> set[ClientId]:
        """The clients that have not replied to an earlier request, whose reply still counts."""
        return {request.client for request in self.pending.values()} if self._accepts_late_replies else set()

    @property
    def _stops_at_quorum(self) -> bool:
        return self.wait_policy.stop_at_quorum or self.wait_policy.buffer is not None

    @property
    def _accepts_late_replies(self) -> bool:
        return self.wait_policy.accepts_late_replies

    def _send_requests(self, state: _ExchangeState, clients: list[ClientId]) -> None:
        exchange, encoded = state.exchange, dict[int, Any]()
        for client in clients:
            payload = exchange.payloads[client]
            if id(payload) not in encoded:  # encode a payload once, even if all clients get it
                seed = self.channel.seed.derive("down", self.round, exchange.address, client)
                encoded[id(payload)] = self.channel.down.encode(payload, seed)
            self.traffic.requests += 1
            request_id = self.id_sign * self.traffic.requests
            state.waiting_for[request_id] = client
            request = Request(
                id=request_id,
                client=client,
                round=self.round,
                address=exchange.address,
                payload=encoded[id(payload)],
            )
            size = measure_size(request)
            self.traffic.payload_down += size.payload
            self.traffic.wire_down += size.wire
            # Set after measuring: the reported traffic must not depend on when checkpoints are written.
            self.transport.send(replace(request, last_checkpointed=self.last_checkpointed))
        state.clients = clients

    def _receive_replies(self, state: _ExchangeState) -> Iterator[Reply]:
        """Yield replies until all have arrived or the wait policy ends the exchange."""
        policy = self.wait_policy
        deadline = math.inf if policy.deadline is None else time.monotonic() + policy.deadline
        while not (self._stops_at_quorum and state.has_quorum):
            if not state.waiting_for and (state.has_quorum or not self._expects_late_reply(state)):
                return
            if self.late_replies and self.id_sign > 0:
                yield self.late_replies.pop(0)
                continue
            timeout = min(policy.timeout, deadline - time.monotonic())
            reply = self.transport.receive(timeout) if timeout > 0 else None
            if reply is None:
                return
            yield reply

    def _expects_late_reply(self, state: _ExchangeState) -> bool:
        """Check whether an earlier request for the same method may still be answered."""
        return any(request.address == state.exchange.address for request in self.pending.values())

    def _take_reply(self, state: _ExchangeState, reply: Reply) -> None:
        if reply.id in state.waiting_for:
            position = (state.waiting_for.pop(reply.id), 0)
        elif reply.id in self.pending and self.id_sign < 0:
            self.late_replies.append(reply)
            return
        elif reply.id in self.pending and self.pending[reply.id].address == state.exchange.address:
            position = (self.pending[reply.id].client, reply.id)
        else:  # too late to count
            self.pending.pop(reply.id, None)
            return
        is_summed = isinstance(reply.value, SummedTerm)
        size = reply.value.size if is_summed else measure_size(reply)
        self.traffic.payload_up += size.payload
        self.traffic.wire_up += size.wire
        state.replied += reply.error is None
        state.early.put(position, reply, 0 if is_summed else size.payload)
        self.on_reply(len(state.clients) - len(state.waiting_for), len(state.clients))
        while not self._stops_at_quorum and (turn := state.next_position) is not None and turn in state.early:
            state.next_index += 1
            self._collect(state, state.early.take(turn), turn)

    def _collect(self, state: _ExchangeState, reply: Reply, position: tuple[ClientId, int]) -> None:
        """Add a reply to the result of the exchange, or record its failure."""
        pending = self.pending.pop(position[1], None)
        staleness_weight = 1.0 if pending is None else self.wait_policy.staleness_weight(self.round - pending.round)
        error = reply.error
        self.lost_sessions += error == SESSION_LOST
        if error is None:
            try:
                value, utility = split_utility(reply.value)
                state.collect(reply.client, self._decode(value), staleness_weight)
                self._observe(reply.client, utility)
                return
            except INVALID_REPLY as invalid:
                self.rejected[reply.client] += 1
                error = str(invalid)
        if self.wait_policy.on_error == "fail":
            named = error.startswith((f"{reply.client}:", f"{reply.client},"))  # a client names itself and the round
            prefix = "" if named else f"{reply.client}: "
            raise RunError(
                f"{prefix}{error} (in {state.exchange.address}; to continue without such clients: "
                "wait_policy.on_error=drop)"
            )
        self.failures.append(ClientFailure(self.round, reply.client, error))
        state.skip()

    def _decode(self, value: Any) -> Any:
        if not isinstance(value, SummedTerm):
            return self.channel.up.decode(value)
        if value.problem is not None:
            raise RunError(value.problem)
        return value

    def _observe(self, client: ClientId, utility: float | None) -> None:
        """Keep what a valid reply shows. A client that replies several times in a round may train in one of them only."""
        if utility is None:
            utility = self.replied[client].utility if client in self.replied else 0.0
        self.replied[client] = Observation(utility, self.durations.get(client, 0.0))

    def _close_exchange(self, state: _ExchangeState) -> None:
        """Mark the clients that have not replied: as late if late replies count, else as failed."""
        may_be_late = self._accepts_late_replies and state.exchange.reads == "sum"
        for request_id, client in state.waiting_for.items():
            if may_be_late:
                self.pending[request_id] = PendingRequest(client, self.round, state.exchange.address)
            else:
                self.failures.append(ClientFailure(self.round, client, "did not reply"))

    def _describe_first_failure(self) -> str:
        failure = next((f for f in self.failures if f.round == self.round), None)
        return f"First failure: {failure.client}: {failure.reason} " if failure else ""


class _ExchangeState:
    """A running exchange: the clients that still have to reply, and the replies that arrived before their turn.

    A reply's position is (client, 0), or (client, request ID) if it belongs to an earlier exchange.
    """

    def __init__(self, exchange: Exchange, collector: Collector, quorum: int) -> None:
        self.exchange, self.collector, self.quorum = exchange, collector, quorum
        self.terms = TermChecker()
        self.early = ReorderBuffer()
        self.waiting_for: dict[int, ClientId] = {}  # by request ID
        self.clients: list[ClientId] = []
        self.next_index = self.replied = self.collected = 0

    @property
    def has_quorum(self) -> bool:
        return self.replied >= self.quorum

    @property
    def next_position(self) -> tuple[ClientId, int] | None:
        return (self.clients[self.next_index], 0) if self.next_index < len(self.clients) else None

    def collect(self, client: ClientId, value: Any, staleness_weight: float) -> None:
        if self.exchange.reads == "each":
            check_finite(value)
        elif not isinstance(value, SummedTerm):
            value = self.terms.check(value)
        if staleness_weight != 1 and isinstance(value, Weighted):
            value = value.scale_weight(staleness_weight)
        self.collector.add(client, value)
        self.collected += 1

    def skip(self) -> None:
        """Keep the place of a client that failed in the order of a sum."""
        if isinstance(self.collector, RunningSum):
            self.collector.skip()
