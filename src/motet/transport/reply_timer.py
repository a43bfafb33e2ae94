"""A transport that records how long each client has been working on its current request."""

from __future__ import annotations

import threading
import time

from motet.core.script import ClientId
from motet.transport.requests import Reply, Request, Transport


class TimedTransport:
    """Wraps a transport. Other threads may read the times while the run uses the transport."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.sent_at: dict[ClientId, float] = {}  # clients with an unanswered request
        self.lock = threading.Lock()

    def send(self, request: Request) -> None:
        with self.lock:
            self.sent_at[request.client] = time.monotonic()
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None:
            with self.lock:
                self.sent_at.pop(reply.client, None)
        return reply

    def close(self) -> None:
        self.transport.close()

    def pending_seconds(self) -> dict[ClientId, float]:
        """Return the clients that have not replied yet, and how many seconds ago each got its request."""
        with self.lock:
            now = time.monotonic()
            return {client: now - sent_at for client, sent_at in sorted(self.sent_at.items())}
