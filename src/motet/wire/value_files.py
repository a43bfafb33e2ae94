"""Serialized values in files. They are written in pieces and read without a second copy in memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import IO, Any

import numpy as np

from motet.core.errors import WireError
from motet.wire.format import deserialize, iter_serialized


def load_value(path: Path) -> Any:
    """Read a serialized value. A WireError names the file."""
    with path.open("rb", buffering=0) as file:
        buffer = np.empty(path.stat().st_size, np.uint8)
        filled = 0
        while filled < len(buffer) and (count := file.readinto(buffer[filled:].data)):
            filled += count
    try:
        return deserialize(buffer[:filled].data)
    except WireError as error:
        raise WireError(f"'{path}' is damaged: {error}") from None


def write_value(value: object, file: IO[bytes]) -> None:
    file.writelines(iter_serialized(value))
    file.flush()


def map_file(file: IO[bytes]) -> memoryview:
    """Map a file into memory. Pages are loaded when they are used; changes to them are not written to the file."""
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
