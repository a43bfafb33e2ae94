"""A transport for tests, on which a function is all clients."""

from __future__ import annotations

from collections.abc import Callable

from motet.transport.requests import Reply, Request


def reply_with_nothing(request: Request) -> Reply:
    return Reply(request.id, request.client)


class AnsweringTransport:
    """Answers requests, the last one first. `requests` are all that were sent."""

    def __init__(self, answer: Callable[[Request], Reply] = reply_with_nothing) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.unanswered: list[Request] = []

    def send(self, request: Request) -> None:
        self.requests.append(request)
        self.unanswered.append(request)

    def receive(self, timeout: float) -> Reply | None:
        return self.answer(self.unanswered.pop()) if self.unanswered else None

    def close(self) -> None: ...
