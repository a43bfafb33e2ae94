"""Triton's kernels on disk, each compiled by one process while the others that need it wait.

Triton creates a `SharedKernelCache` for every kernel that it looks up (TRITON_CACHE_MANAGER), so this module is imported
by Triton alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from triton.runtime.cache import FileCacheManager

from motet.experiment.build.cache_folder import lock_entry
from motet.report.profiler import span

T = TypeVar("T")

MAX_WAIT_SECONDS = 120.0  # for one kernel, which takes about a second to compile


class SharedKernelCache(FileCacheManager):  # type: ignore[misc]
    """Locks a missing kernel until it is stored, or until Triton drops this object because of an error."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        self.is_shared = not override and not dump
        self.missing: tuple[str, ...] = ()  # the locked entry: "file" or "group", and its name
        self.lock = ExitStack()

    def get_file(self, filename: str) -> str | None:
        return self._find(super().get_file, "file", filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        return self._find(super().get_group, "group", filename)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        path: str = super().put(data, filename, binary)
        self._release("file", filename)
        return path

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        path: str = super().put_group(filename, group)
        self._release("group", filename)
        return path

    def _find(self, read: Callable[[str], T | None], kind: str, filename: str) -> T | None:
        value = read(filename)
        if value is not None or not self.is_shared or self.missing:
            return value
        self.missing = (kind, filename)
        with span("wait for a kernel", ""):
            self.lock.enter_context(lock_entry(Path(self.cache_dir) / filename, MAX_WAIT_SECONDS))
        value = read(filename)
        if value is not None:  # another process has compiled it in the meantime
            self._release(kind, filename)
        return value

    def _release(self, kind: str, filename: str) -> None:
        if self.missing == (kind, filename):
            self.missing = ()
            self.lock.close()
