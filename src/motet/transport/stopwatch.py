"""A transport that measures how long each client takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from motet.core.script import ClientId
from motet.transport.requests import Reply, Request, Transport


class Stopwatch:
    """Wraps a transport. `durations` has the seconds from the last request of a client to its reply."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self.transport, self.clock = transport, clock
        self.durations: dict[ClientId, float] = {}
        self.sent_at: dict[int, float] = {}

    @property
    def seconds(self) -> float:
        return self.clock()

    def send(self, request: Request) -> None:
        if request.id >= 0:  # not an evaluation
            self.sent_at[request.id] = self.clock()
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = self.transport.receive(timeout)
        if reply is not None and reply.id in self.sent_at:
            self.durations[reply.client] = self.clock() - self.sent_at.pop(reply.id)
        return reply

    def close(self) -> None:
        self.transport.close()
