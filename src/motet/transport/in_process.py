"""Simulation: the clients live in this process, and their work is done when their replies are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from motet.transport.client_runtime import ClientRuntime
from motet.transport.requests import Reply, Request


class InProcessTransport:
    def __init__(self, host: ClientRuntime) -> None:
        self.host = host
        self.waiting: deque[Request] = deque()
        self.working: Iterator[Reply] = iter(())

    def send(self, request: Request) -> None:
        self.waiting.append(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = next(self.working, None)
        if reply is None and self.waiting:  # those who were asked before have all answered
            self.working = self.host.replies(self._taken())
            reply = next(self.working, None)
        return reply

    def _taken(self) -> Iterator[Request]:
        while self.waiting:
            yield self.waiting.popleft()

    def close(self) -> None:
        self.waiting.clear()
        self.working = iter(())
