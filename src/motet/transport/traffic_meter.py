"""A transport that notes for each client what went to and fro, and how long it took to answer."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from motet.core.script import ClientId
from motet.transport.requests import Reply, Request, Transport
from motet.wire import measure_size


@dataclass
class ClientTraffic:
    """One client's account."""

    asked: int = 0
    answered: int = 0
    failed: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0  # of all its answers together


class MeteredTransport:
    """Counts beside the transport; changes nothing. Others may read while it counts."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.meters: dict[ClientId, ClientTraffic] = {}
        self.since: dict[ClientId, float] = {}
        self.lock = threading.Lock()

    def send(self, request: Request) -> None:
        with self.lock:
            meter = self.meters.setdefault(request.client, ClientTraffic())
            meter.asked += 1
            meter.bytes_down += measure_size(request).wire
            self.since[request.client] = time.monotonic()
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None:
            with self.lock:
                meter = self.meters.setdefault(reply.client, ClientTraffic())
                meter.answered += reply.error is None
                meter.failed += reply.error is not None
                meter.bytes_up += measure_size(reply).wire
                meter.seconds += time.monotonic() - self.since.pop(reply.client, time.monotonic())
        return reply

    def close(self) -> None:
        self.transport.close()

    def waited_for(self) -> dict[ClientId, float]:
        """Who owes an answer, and for how many seconds."""
        with self.lock:
            now = time.monotonic()
            return {client: now - since for client, since in sorted(self.since.items())}
