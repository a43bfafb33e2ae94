"""Messages as a client's link brings them, until it breaks; then it stays broken, however often one asks."""

from __future__ import annotations

import queue


class ReceiveQueue:
    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[memoryview | Exception] = queue.SimpleQueue()

    def put(self, message: memoryview | Exception) -> None:
        self.waiting.put(message)

    def next(self, timeout: float | None) -> memoryview | None:
        """The next message, or None if none comes in time."""
        try:
            item = self.waiting.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            self.waiting.put(item)
            raise item
        return item
