"""Values in files: written piece by piece, read to where their tensors stay, and never held twice."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import IO, Any

import numpy as np

from motet.wire.format import deserialize, iter_serialized


def load_value(path: Path) -> Any:
    """The value that a file holds."""
    with path.open("rb", buffering=0) as file:
        buffer = np.empty(path.stat().st_size, np.uint8)
        at = 0
        while at < len(buffer) and (got := file.readinto(buffer[at:].data)):
            at += got
    return deserialize(buffer[:at].data)


def write_value(value: object, file: IO[bytes]) -> None:
    file.writelines(iter_serialized(value))
    file.flush()


def map_file(file: IO[bytes]) -> memoryview:
    """A file's bytes where the system keeps them: in memory only while they are used. What is written to them stays here."""
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
