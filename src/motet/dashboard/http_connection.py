"""A connection to the dashboard. Uvicorn waits forever for a request; here, silent connections are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 128
IDLE_SECONDS = 15.0  # without a complete request


class LimitedConnection(H11Protocol):
    """Closed at once beyond the limit of connections, and when no request is complete for some time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._check = self.loop.call_later(IDLE_SECONDS, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def _close_if_idle(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self._check = self.loop.call_later(IDLE_SECONDS, self._close_if_idle)
