"""Requests, replies, and the interface of everything that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from motet.core.messages import message
from motet.core.script import ClientId


@message
@dataclass(frozen=True, eq=False)
class Request:
    """A call of one client method. IDs increase over a run.

    Requests with IDs up to `last_checkpointed` are covered by a checkpoint and will not be sent again.
    """

    id: int
    client: ClientId
    round: int
    address: str
    payload: Any
    last_checkpointed: int = 0


@message
@dataclass(frozen=True, eq=False)
class Reply:
    """The result of a request, or an error message."""

    id: int
    client: ClientId
    value: Any = None
    error: str | None = None


class Transport(Protocol):
    def send(self, request: Request) -> None: ...
    def receive(self, timeout: float) -> Reply | None:
        """Return the next reply, or None if none arrives within `timeout` seconds."""

    def close(self) -> None: ...
