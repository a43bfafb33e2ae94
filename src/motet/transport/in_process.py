"""The transport of a simulation: clients run in this process when their replies are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from motet.transport.client_runtime import ClientRuntime
from motet.transport.requests import Reply, Request


class InProcessTransport:
    def __init__(self, runtime: ClientRuntime) -> None:
        self.runtime = runtime
        self.queued: deque[Request] = deque()
        self.replies: Iterator[Reply] = iter(())

    def send(self, request: Request) -> None:
        self.queued.append(request)

    def receive(self, timeout: float) -> Reply | None:
        reply = next(self.replies, None)
        if reply is None and self.queued:  # the previous batch is done
            self.replies = self.runtime.answer_requests(self._drain())
            reply = next(self.replies, None)
        return reply

    def _drain(self) -> Iterator[Request]:
        while self.queued:
            yield self.queued.popleft()

    def close(self) -> None:
        self.queued.clear()
        self.replies = iter(())
