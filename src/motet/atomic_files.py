"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

SUFFIX = ".part"


@contextmanager
def replace_when_complete(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside `path`. At the end of the block it replaces `path`; a failure deletes it.

    Two processes may write the same file, such as the tables of a benchmark. So each has a temporary file of its own.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def delete_incomplete_files(folder: Path) -> None:
    """Delete what killed processes left in a folder and its direct subfolders. Nobody else may be writing there."""
    for path in chain(folder.glob(f".*{SUFFIX}"), folder.glob(f"*/.*{SUFFIX}")):
        path.unlink(missing_ok=True)
