"""Files that appear under their name only when they are complete, and files that are changed in place."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from motet.core.errors import RunError

SUFFIX = ".part"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
Stamp = tuple[int, int, int]


@contextmanager
def replace_when_complete(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside `path`. At the end of the block it replaces `path`; a failure deletes it.

    Two processes may write the same file, such as the tables of a benchmark. So each has a temporary file of its own.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        with name_full_disk(path):
            yield temporary
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def name_full_disk(path: Path) -> Iterator[None]:
    """Add the file to the error of a full disk, which names none if it comes from a write."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK and error.filename is None:
            error.filename = str(path)
        raise


def delete_incomplete_files(folder: Path) -> None:
    """Delete what killed processes left in a folder and its direct subfolders. Nobody else may be writing there."""
    subfolders = (path for path in folder.glob("*/") if not path.is_symlink())
    for path in chain.from_iterable(each.glob(f".*{SUFFIX}") for each in (folder, *subfolders)):
        path.unlink(missing_ok=True)


def open_in_place(path: Path, mode: str) -> IO[str]:
    """Open a file that is changed in place. In a folder from someone else, it could be a link to any file of the user."""
    try:
        return open(
            path, mode, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)
        )
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RunError(f"'{path}' is a link; expected a file. Replace it by the file, or use another folder.") from None


def read_stamp(path: Path) -> Stamp | None:
    """Return what changes whenever a file is written or replaced; None if it cannot be found."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
