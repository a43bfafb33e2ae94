"""A transport that computes how long its messages would take over an emulated network. Nothing waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.transport.emulated_network import LinkProfile, Network
from motet.transport.requests import Reply, Request, Transport
from motet.wire import measure_size


class EmulatedTransport:
    """Wraps a transport and keeps a virtual clock of how long its messages would have taken.

    `count_examples` returns the number of a client's training examples. `durations` has the seconds from the last
    request of a client to its reply.
    """

    def __init__(
        self,
        transport: Transport,
        network: Network,
        clients: ClientList,
        count_examples: Callable[[ClientId], int] = lambda client: 0,
    ) -> None:
        self.transport, self.network, self.clients = transport, network, clients
        self.count_examples = count_examples
        network.link_profile(0)  # report an unreadable trace before any training
        self.profiles: dict[ClientId, LinkProfile] = {}
        self.durations: dict[ClientId, float] = {}
        self.sent_at: dict[int, tuple[float, float]] = {}  # request ID -> when it was sent, and reached its client
        self.last_send = self.last_receive = 0.0

    @property
    def seconds(self) -> float:
        return max(self.last_send, self.last_receive)

    def set_clock(self, seconds: float) -> None:
        self.last_send = self.last_receive = seconds

    def send(self, request: Request) -> None:
        if request.id >= 0:  # an evaluation takes no time
            self.last_send = self.seconds  # the server sends after it has received every reply it waited for
            self.start(request, self.last_send)
        self.transport.send(request)

    def start(self, request: Request, now: float) -> None:
        """Let a request leave the server."""
        profile = self._profile(request.client)
        request = replace(request, last_checkpointed=0)  # the clock must not depend on when checkpoints are written
        arrival = profile.down.finish_time(now + profile.latency, measure_size(request).wire)
        self.sent_at[request.id] = (now, arrival)

    def finish_time(self, reply: Reply) -> float:
        """Return when the reply to a started request reaches the server."""
        sent, arrival = self.sent_at.pop(reply.id)
        profile = self._profile(reply.client)
        end = profile.up.finish_time(arrival + profile.compute_seconds + profile.latency, measure_size(reply).wire)
        self.durations[reply.client] = end - sent
        return end

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None and reply.id in self.sent_at:
            self.last_receive = max(self.last_receive, self.finish_time(reply))
        return reply

    def close(self) -> None:
        self.transport.close()

    def _profile(self, client: ClientId) -> LinkProfile:
        if client not in self.profiles:
            index = self.clients.index(client)
            device, link = Seed(0).derive("device", index).numpy().standard_normal(2)
            self.profiles[client] = self.network.link_profile(index, self.count_examples(client), (device, link))
        return self.profiles[client]
