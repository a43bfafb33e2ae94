"""Files and folders that only their owner can read: runs, client state, keys and lists of clients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can open. A folder that exists keeps its mode, and so do its parents."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def open_private_file(path: Path) -> IO[bytes]:
    """Open a new or emptied file for writing that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)  # the mode above is ignored if the file exists
    return os.fdopen(descriptor, "wb")
