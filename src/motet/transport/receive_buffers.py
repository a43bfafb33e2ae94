"""Memory for messages that are coming in, shared by all links of a server; what does not fit goes to unnamed files."""

from __future__ import annotations

import math
import tempfile
import threading
import weakref
from typing import IO, Protocol

import numpy as np

from motet.wire.value_files import map_file


class MessageBuffer(Protocol):
    """Where a message is put together."""

    def add(self, piece: memoryview) -> None: ...
    def whole(self) -> memoryview: ...


class ReceiveBuffers:
    """Clients that all answer at once take no more memory than a few do. Nobody has to wait, so nobody can make others wait."""

    def __init__(self, budget: float = 2**29) -> None:
        self.budget, self.used = budget, 0
        self.lock = threading.RLock()  # a place may be given back in the midst of anything

    def store(self, size: int) -> MessageBuffer:
        with self.lock:
            if self.used + size > self.budget:
                return _Filed()
            self.used += size
        array = np.empty(size, np.uint8)  # not touched, so not taken from the machine, before bytes come
        weakref.finalize(array, self._leave, size).atexit = False  # when nobody holds the bytes any more
        return _Held(array)

    def _leave(self, size: int) -> None:
        with self.lock:
            self.used -= size


UNLIMITED = ReceiveBuffers(math.inf)


class _Held:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.filled = array, 0

    def add(self, piece: memoryview) -> None:
        self.array[self.filled : self.filled + len(piece)] = np.frombuffer(piece, np.uint8)
        self.filled += len(piece)

    def whole(self) -> memoryview:
        return self.array.data


class _Filed:
    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open until it is whole or forgotten

    def add(self, piece: memoryview) -> None:
        while len(piece):
            piece = piece[self.file.write(piece) :]

    def whole(self) -> memoryview:
        with self.file:
            return map_file(self.file)
