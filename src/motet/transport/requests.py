"""Requests, replies, and the interface of everything that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from motet.core.messages import message
from motet.core.script import ClientId, Collector
from motet.wire import MessageSize


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


@message
@dataclass(frozen=True, eq=False)
class ValueWithUtility:
    """The value of a reply, and the utility of the training that computed it. Only for cohorts by utility."""

    value: Any
    utility: float


class Transport(Protocol):
    def send(self, request: Request) -> None: ...
    def receive(self, timeout: float) -> Reply | None:
        """Return the next reply, or None if none arrives within `timeout` seconds."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class SummedTerm:
    """In place of the value of a reply: it is a term of a sum that is computed elsewhere. Never sent between processes."""

    size: MessageSize  # of the reply that it stands for
    problem: str | None = None  # why the term is invalid, and not part of the sum


@runtime_checkable
class SummingTransport(Protocol):
    """A transport that can sum replies where they are computed."""

    def choose_collector(self, collector: Collector) -> Collector:
        """Return the collector for the replies of the next exchange: this one, or one that only gets `SummedTerm`s."""
