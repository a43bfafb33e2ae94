"""A transport that records the requests, failures and bytes of each client."""

from __future__ import annotations

import threading
import time
from collections import Counter

from motet.core.script import ClientId
from motet.transport.requests import Reply, Request, Transport
from motet.wire import measure_size


class TimedTransport:
    """Wraps a transport. Other threads may read the times while the run uses the transport."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.sent_at: dict[ClientId, float] = {}  # clients with an unanswered request
        self.bytes_up: Counter[ClientId] = Counter()
        self.bytes_down: Counter[ClientId] = Counter()
        self.failures: Counter[ClientId] = Counter()
        self.lock = threading.Lock()

    def send(self, request: Request) -> None:
        size = measure_size(request).wire
        with self.lock:
            self.sent_at[request.client] = time.monotonic()
            self.bytes_down[request.client] += size
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None:
            size = measure_size(reply).wire
            with self.lock:
                self.sent_at.pop(reply.client, None)
                self.bytes_up[reply.client] += size
                self.failures[reply.client] += reply.error is not None
        return reply

    def close(self) -> None:
        """Do nothing: the server closes the connections itself, and tells the clients why."""

    def traffic(self) -> dict[ClientId, dict[str, int]]:
        """Return the bytes of each client's messages since this server started, evaluations included."""
        with self.lock:
            return {c: {"up": self.bytes_up[c], "down": self.bytes_down[c]} for c in sorted(self.bytes_down)}

    def failed_requests(self) -> dict[ClientId, int]:
        """Return how many requests of each client have failed since this server started."""
        with self.lock:
            return dict(self.failures)

    def pending_seconds(self) -> dict[ClientId, float]:
        """Return the clients that have not replied yet, and how many seconds ago each got its request."""
        with self.lock:
            now = time.monotonic()
            return {client: now - sent_at for client, sent_at in sorted(self.sent_at.items())}
