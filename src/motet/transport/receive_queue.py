"""The queue of messages that a client has received from the server."""

from __future__ import annotations

import queue


class ReceiveQueue:
    """Holds messages until they are read. After the link has failed, every read raises its error."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[memoryview | Exception] = queue.SimpleQueue()

    def put(self, item: memoryview | Exception) -> None:
        self.items.put(item)

    def get(self, timeout: float | None) -> memoryview | None:
        """Return the next message, or None if none arrives in time."""
        try:
            item = self.items.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            self.items.put(item)  # for the next read
            raise item
        return item
