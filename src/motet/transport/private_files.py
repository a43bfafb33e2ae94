"""Files and folders that only their owner can read: runs, client state, keys and lists of clients."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from motet.atomic_files import replace_when_complete

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
Piece = bytes | bytearray | memoryview


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can open. A folder that exists keeps its mode, and so do its parents."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def open_private_file(path: Path) -> IO[bytes]:
    """Open a new or emptied file for writing that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)  # the mode above is ignored if the file exists
    return os.fdopen(descriptor, "wb")


def write_atomically(path: Path, *pieces: Piece) -> None:
    """Write a file so that a crash leaves either the old content or the complete new content."""
    write_pieces_atomically(path, pieces)


def write_pieces_atomically(path: Path, pieces: Iterable[Piece]) -> None:
    """Like `write_atomically`, for pieces that are produced one at a time."""
    with replace_when_complete(path) as temporary, open_private_file(temporary) as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
