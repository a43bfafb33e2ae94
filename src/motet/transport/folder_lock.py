"""A lock on a folder that only one live process can hold. It ends with the process, however the process ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from motet.atomic_files import delete_incomplete_files, open_in_place
from motet.transport.private_files import create_private_folder

LOCK_FILE = "run.lock"
LOCK_ATTEMPTS, LOCK_PAUSE = 5, 0.02  # a process that asks whether a folder is free holds its lock for an instant

# POSIX locks do not exclude the process that holds them, and end when that process closes any handle of the file.
_held_here: set[Path] = set()


@contextmanager
def lock_folder(folder: Path) -> Iterator[bool]:
    """Lock a folder, and create it if it is missing. Yield False if another process has it.

    Forked workers do not inherit the lock. The lock file is deleted at the end.
    """
    create_private_folder(folder)
    path = folder.resolve() / LOCK_FILE
    file = None if path in _held_here else _acquire(path)
    if file is None:
        yield False
        return
    _held_here.add(path)
    try:
        delete_incomplete_files(folder)
        yield True
    finally:
        path.unlink(missing_ok=True)
        _held_here.discard(path)
        file.close()


def find_lock_owner(folder: Path) -> str | None:
    """Return the live process that has the folder, such as "process 4711 on host-a". None if it is free."""
    path = folder.resolve() / LOCK_FILE
    if path not in _held_here and _is_free(path):
        return None
    try:
        return path.read_text("utf-8").strip() if path not in _held_here else _describe_process()
    except OSError:
        return None


def _acquire(path: Path) -> IO[str] | None:
    failures = 0
    while True:
        file = open_in_place(path, "a+")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            failures += 1
            if failures == LOCK_ATTEMPTS:
                return None
            time.sleep(LOCK_PAUSE)
            continue
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()  # its last owner has deleted the file in the meantime
    file.truncate(0)
    file.write(_describe_process() + "\n")
    file.flush()
    return file


def _is_free(path: Path) -> bool:
    try:
        with open_in_place(path, "r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _describe_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
