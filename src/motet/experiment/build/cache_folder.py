"""The cache on disk: what takes long to compute and depends only on content, such as tokenized texts and partitions.

Entries are named by a hash of everything they depend on. Each has a checksum, which is verified when it is read. A folder
that others can write to is not used. Processes that need the same entry wait for the one that computes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from motet.transport.private_files import PRIVATE_FILE, create_private_folder

MAX_WAIT_SECONDS = 600.0  # a process that was suspended while it computed an entry does not stop the others for good
KINDS = ("features", "partitions", "kernels")


class CacheUse(NamedTuple):
    """The number of entries of a kind, and their bytes."""

    entries: int
    size: int


def cache_folder() -> Path | None:
    """Return $MOTET_CACHE, or the user's cache folder. An empty MOTET_CACHE disables the cache."""
    folder = os.environ.get("MOTET_CACHE")
    if folder is not None:
        return Path(folder) if folder else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "motet"


def open_cache(kind: str) -> Path | None:
    """Return the folder of a kind of entries; None if the cache is disabled, cannot be written, or is not ours alone."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        for path in (folder, folder / kind):
            create_private_folder(path)
            if not _is_ours_alone(path):
                return None
    except OSError:
        return None
    return folder / kind


def _is_ours_alone(folder: Path) -> bool:
    """Return True if no other user can write to the folder. Anyone who can could choose what we train on."""
    if os.name != "posix":
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def key_for(*depends_on: object) -> str:
    """Return the name of an entry: a hash of everything it depends on."""
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:24]


@contextmanager
def lock_entry(path: Path, max_wait: float = MAX_WAIT_SECONDS) -> Iterator[bool]:
    """Wait until no other process looks up or computes an entry. A lock ends with its process, however that ends.

    Yield False if the wait took too long or the file system has no locks: then work may be done twice.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=max_wait, mode=PRIVATE_FILE)
    try:
        lock.acquire()
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep_kernels() -> None:
    """Let Triton and PyTorch's compiler keep their kernels in the cache, unless the user chose other folders.

    Processes that need the same kernel wait for the one that compiles it.
    """
    os.environ.setdefault("TRITON_CACHE_MANAGER", "motet.experiment.build.kernel_cache:SharedKernelCache")
    folder = open_cache("kernels")
    if folder is not None:
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))


def measure_cache() -> dict[str, CacheUse]:
    """Return how much the cache holds of each kind."""
    folder = cache_folder()
    return {kind: _measure(folder / kind) if folder else CacheUse(0, 0) for kind in KINDS}


def _measure(folder: Path) -> CacheUse:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    return CacheUse(len(entries), sum(path.stat().st_size for path in files))


def clear_cache() -> dict[str, CacheUse]:
    """Delete all entries, and return what was deleted. Other files in the folder stay."""
    before, folder = measure_cache(), cache_folder()
    if folder is not None:
        for kind in KINDS:
            shutil.rmtree(folder / kind, ignore_errors=True)
    return before
