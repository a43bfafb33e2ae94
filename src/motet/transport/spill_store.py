"""Packed values under names: in the host's memory while there is room, in files when there is none, or when they must last."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from motet.wire import deserialize, iter_serialized, measure_size
from motet.wire.value_files import load_value

Piece = bytes | bytearray | memoryview


class SpillStore:
    """A page never changes: what is put is a new one. Files stay until they are swept, since a checkpoint may name them."""

    def __init__(self, folder: Path, room: int = 0) -> None:
        self.folder, self.room = folder, room
        self.held: dict[str, bytearray] = {}
        self.number = 0

    def put(self, label: str, value: Any, lasting: bool = False) -> str:
        self.number += 1
        name = f"{self.number:08d}-{re.sub(r'[^A-Za-z0-9_-]', '_', label)[:80]}"
        if not lasting and sum(map(len, self.held.values())) + measure_size(value).wire <= self.room:
            self.held[name] = bytearray().join(iter_serialized(value))
        else:
            self._write(name, iter_serialized(value))
        return name

    def get(self, name: str) -> Any:
        return deserialize(self.held[name]) if name in self.held else load_value(self.folder / name)

    def last(self, names: Iterable[str]) -> None:
        """From now on these are in files."""
        for name in names:
            if name in self.held:
                self._write(name, [self.held[name]])
                del self.held[name]

    def release(self, needed: set[str]) -> None:
        """Give back the memory of all but these."""
        for name in [name for name in self.held if name not in needed]:
            del self.held[name]

    def sweep(self, needed: set[str]) -> None:
        """Delete the files of all but these."""
        self.release(needed)
        if self.folder.exists():
            for path in self.folder.iterdir():
                if path.name not in needed:
                    path.unlink()

    def go_on_after(self, names: Iterable[str]) -> None:
        self.number = max((int(name.partition("-")[0]) for name in names), default=0)

    def _write(self, name: str, pieces: Iterable[Piece]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pieces_atomically(self.folder / name, pieces)


def write_atomically(path: Path, *pieces: Piece) -> None:
    """All of it or nothing, whatever happens meanwhile."""
    write_pieces_atomically(path, pieces)


def write_pieces_atomically(path: Path, pieces: Iterable[Piece]) -> None:
    """The same, of what is made while it is written."""
    beside = path.with_name(f".{path.name}.part")
    with beside.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
