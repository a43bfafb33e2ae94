"""What travels: a request to one client, its reply; and the three verbs of whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from motet.core.messages import message
from motet.core.script import ClientId


@message
@dataclass(frozen=True, eq=False)
class Request:
    """A question to one client. Numbers grow over a run; those up to `settled` will never be asked again."""

    id: int
    client: ClientId
    round: int
    address: str
    payload: Any
    settled: int = 0


@message
@dataclass(frozen=True, eq=False)
class Reply:
    """A value, or the sentence that says why there is none."""

    id: int
    client: ClientId
    value: Any = None
    error: str | None = None


class Transport(Protocol):
    def send(self, request: Request) -> None: ...
    def receive(self, timeout: float) -> Reply | None:
        """The next reply, or None when none came in time."""

    def close(self) -> None: ...
