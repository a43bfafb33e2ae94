"""Arrays that grow. Large ones move to a temporary file and are memory-mapped, so that they need no memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

import numpy as np

from motet.core.errors import DataError

MEMORY_LIMIT = 64 << 20  # bytes of an array that stay in memory


class GrowingArray:
    """Collects arrays of one type, and joins them to one."""

    def __init__(self, dtype: type[np.generic], memory_limit: int = MEMORY_LIMIT) -> None:
        self.dtype = np.dtype(dtype)
        self.memory_limit = memory_limit
        self.size = 0
        self._chunks: list[np.ndarray] = []
        self._bytes_in_memory = 0
        self._file: IO[bytes] | None = None

    def append(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self.dtype)
        self._chunks.append(values)
        self.size += len(values)
        self._bytes_in_memory += values.nbytes
        if self._bytes_in_memory > self.memory_limit:
            self._move_to_disk()

    def build(self) -> np.ndarray:
        """Return all values; no more can be appended."""
        if self._file is None:
            values = np.concatenate(self._chunks) if self._chunks else np.zeros(0, self.dtype)
        else:
            self._move_to_disk()
            self._file.flush()
            values = np.memmap(self._file, self.dtype, mode="r", shape=(self.size,))
            self._file.close()  # the mapping keeps the deleted file alive
        self._chunks.clear()
        return values

    def _move_to_disk(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="motet-", dir=temporary_folder())  # noqa: SIM115
            for chunk in self._chunks:
                self._file.write(chunk.data)
        except OSError as error:
            raise DataError(
                f"A large column does not fit into the temporary folder {temporary_folder()} ({error.strerror}). "
                "Set the environment variable TMPDIR to a folder with more space."
            ) from None
        self._chunks.clear()
        self._bytes_in_memory = 0


def temporary_folder() -> str:
    """Return $TMPDIR, or /var/tmp: on some systems, /tmp is in memory."""
    if os.environ.get("TMPDIR") or not os.access("/var/tmp", os.W_OK):
        return tempfile.gettempdir()
    return str(Path("/var/tmp"))
