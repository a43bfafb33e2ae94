"""What clients remember between rounds: in memory while they fit, on disk when they do not, and never lost by a failure."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

from motet.core.script import ClientId
from motet.wire import measure, packed
from motet.wire.files import load

Key = tuple[str, ClientId]


class Memories:
    """Changes made in a round count only once the round is settled, so that a checkpoint never holds half a round."""

    def __init__(self, folder: Path | None = None, budget: int = 2**30) -> None:
        self.folder, self.budget = folder, budget
        self.values: OrderedDict[Key, Any] = OrderedDict()  # in memory, the least recently used first
        self.sizes: dict[Key, int] = {}
        self.files: dict[Key, str] = {}  # on disk, and not changed since
        self.changed: dict[Key, Any] = {}  # in this round
        self.spilled: dict[Key, str] = {}  # changed in this round, and already on disk
        self.written = 0

    def get(self, program: str, client: ClientId) -> Any:
        key = (program, client)
        if key in self.changed:
            return self.changed[key]
        if key in self.spilled:
            return self._read(self.spilled[key])
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        if key not in self.files:
            return None
        self._hold(key, self._read(self.files[key]))
        return self.values[key]

    def put(self, program: str, client: ClientId, value: Any) -> None:
        key = (program, client)
        self.changed[key] = value
        self.spilled.pop(key, None)
        self.sizes[key] = measure(value).payload
        if self.folder is not None and sum(self.sizes[k] for k in self.changed) > self.budget:
            for old, memory in list(self.changed.items()):
                self.spilled[old] = self._write(old, memory)
            self.changed.clear()

    def settle(self) -> None:
        """The round is over: its changes count."""
        for key, value in self.changed.items():
            self.files.pop(key, None)
            self._hold(key, value)
        for key, name in self.spilled.items():
            self.values.pop(key, None)
            self.files[key] = name
        self.changed.clear()
        self.spilled.clear()

    def forget_round(self) -> None:
        self.changed.clear()
        self.spilled.clear()

    def save(self) -> dict[Key, str]:
        """Write all that is settled to disk; which file holds what."""
        for key, value in self.values.items():
            if key not in self.files:
                self.files[key] = self._write(key, value)
        return dict(self.files)

    def restore(self, files: dict[Key, str]) -> None:
        self.values.clear()
        self.forget_round()
        self.files = dict(files)
        self.written = max((int(name.partition("-")[0]) for name in files.values()), default=0)
        self.sweep()

    def sweep(self) -> None:
        """Delete files that no checkpoint needs."""
        if self.folder is not None and self.folder.exists():
            needed = {*self.files.values(), *self.spilled.values()}
            for path in self.folder.iterdir():
                if path.name not in needed:
                    path.unlink()

    def _hold(self, key: Key, value: Any) -> None:
        self.values[key] = value
        self.values.move_to_end(key)
        self.sizes.setdefault(key, measure(value).payload)
        while self.folder is not None and len(self.values) > 1 and self._held() > self.budget:
            old, memory = self.values.popitem(last=False)
            if old not in self.files:
                self.files[old] = self._write(old, memory)

    def _held(self) -> int:
        return sum(self.sizes[k] for k in self.values)

    def _write(self, key: Key, value: Any) -> str:
        if self.folder is None:
            raise RuntimeError("memories without a folder cannot be written")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.written += 1
        name = f"{self.written:08d}-{re.sub(r'[^A-Za-z0-9_-]', '_', '-'.join(key))[:80]}"
        write_atomically(self.folder / name, *packed(value))
        return name

    def _read(self, name: str) -> Any:
        if self.folder is None:
            raise RuntimeError("memories without a folder cannot be read")
        return load(self.folder / name)


class Secrets:
    """What clients remember for the length of one sum; it must never reach a disk."""

    def __init__(self) -> None:
        self.values: dict[Key, Any] = {}

    def get(self, program: str, client: ClientId) -> Any:
        return self.values.get((program, client))

    def put(self, program: str, client: ClientId, value: Any) -> None:
        self.values[program, client] = value


def write_atomically(path: Path, *pieces: bytes | memoryview) -> None:
    """All of it or nothing, whatever happens meanwhile."""
    beside = path.with_name(f".{path.name}.part")
    with beside.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
