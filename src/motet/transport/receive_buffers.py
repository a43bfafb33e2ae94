"""Buffers for incoming messages. All links of a server share one memory budget; the rest goes to unnamed files."""

from __future__ import annotations

import math
import tempfile
import threading
import weakref
from typing import IO, Protocol

import numpy as np

from motet.wire.value_files import map_file


class MessageBuffer(Protocol):
    """Collects the chunks of one message."""

    def append(self, chunk: memoryview) -> None: ...
    def view(self) -> memoryview:
        """Return the complete message."""


class ReceiveBuffers:
    """Allocates message buffers within a memory budget, even if all clients reply at once.

    A message beyond the budget goes to a file at once. No client has to wait, so no client can make others wait.
    """

    def __init__(self, budget: float = 2**29) -> None:
        self.budget, self.used = budget, 0
        self.lock = threading.RLock()  # reentrant: garbage collection may release a buffer inside any locked section

    def allocate(self, size: int) -> MessageBuffer:
        with self.lock:
            if self.used + size > self.budget:
                return _FileBuffer()
            self.used += size
        array = np.empty(size, np.uint8)  # the system provides the pages only when bytes are written
        weakref.finalize(array, self._release, size).atexit = False  # runs when the last view of the bytes is gone
        return _MemoryBuffer(array)

    def _release(self, size: int) -> None:
        with self.lock:
            self.used -= size


UNLIMITED = ReceiveBuffers(math.inf)


class _MemoryBuffer:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.filled = array, 0

    def append(self, chunk: memoryview) -> None:
        self.array[self.filled : self.filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
        self.filled += len(chunk)

    def view(self) -> memoryview:
        return self.array.data


class _FileBuffer:
    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by view() or with the object

    def append(self, chunk: memoryview) -> None:
        while len(chunk):
            chunk = chunk[self.file.write(chunk) :]

    def view(self) -> memoryview:
        with self.file:
            return map_file(self.file)
