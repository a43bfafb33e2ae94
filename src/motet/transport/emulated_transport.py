"""A transport that computes how long its messages would take over an emulated network. Nothing waits."""

from __future__ import annotations

from motet.core.program import ClientList
from motet.core.script import ClientId
from motet.transport.emulated_network import LinkProfile, Network
from motet.transport.requests import Reply, Request, Transport
from motet.wire import measure_size


class EmulatedTransport:
    """Wraps a transport and keeps a virtual clock of how long its messages would have taken."""

    def __init__(self, transport: Transport, network: Network, clients: ClientList) -> None:
        self.transport, self.network, self.clients = transport, network, clients
        network.link_profile(0)  # report an unreadable trace before any training
        self.profiles: dict[ClientId, LinkProfile] = {}
        self.arrival_times: dict[int, float] = {}  # request ID -> when it reached its client
        self.last_send = self.last_receive = 0.0

    @property
    def seconds(self) -> float:
        return max(self.last_send, self.last_receive)

    def set_clock(self, seconds: float) -> None:
        self.last_send = self.last_receive = seconds

    def send(self, request: Request) -> None:
        self.last_send = self.seconds  # the server sends after it has received every reply it waited for
        profile = self._profile(request.client)
        size = measure_size(request).wire
        self.arrival_times[request.id] = profile.down.finish_time(self.last_send + profile.latency, size)
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None and reply.id in self.arrival_times:
            profile = self._profile(reply.client)
            ready = self.arrival_times.pop(reply.id) + profile.work
            arrival = profile.up.finish_time(ready + profile.latency, measure_size(reply).wire)
            self.last_receive = max(self.last_receive, arrival)
        return reply

    def close(self) -> None:
        self.transport.close()

    def _profile(self, client: ClientId) -> LinkProfile:
        if client not in self.profiles:
            self.profiles[client] = self.network.link_profile(self.clients.index(client))
        return self.profiles[client]
