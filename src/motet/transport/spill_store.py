"""A store of serialized values: in host memory within a budget, else in files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from motet.transport.private_files import Piece, create_private_folder, write_pieces_atomically
from motet.wire import deserialize, iter_serialized, measure_size
from motet.wire.value_files import load_value


class SpillStore:
    """Entries never change; each `put` creates a new one.

    Files stay until `delete_except`: a checkpoint may need them.
    """

    def __init__(self, folder: Path, memory_budget: int = 0) -> None:
        self.folder, self.memory_budget = folder, memory_budget
        self.in_memory: dict[str, bytearray] = {}
        self.bytes_in_memory = 0
        self.last_number = 0

    def put(self, label: str, value: Any, durable: bool = False) -> str:
        """Store a value and return its name. A durable value is written to a file at once."""
        self.last_number += 1
        name = f"{self.last_number:08d}-{re.sub(r'[^A-Za-z0-9_-]', '_', label)[:80]}"
        if not durable and self.bytes_in_memory + measure_size(value).wire <= self.memory_budget:
            self.in_memory[name] = bytearray().join(iter_serialized(value))
            self.bytes_in_memory += len(self.in_memory[name])
        else:
            self._write(name, iter_serialized(value))
        return name

    def get(self, name: str) -> Any:
        return deserialize(self.in_memory[name]) if name in self.in_memory else load_value(self.folder / name)

    def persist(self, names: Iterable[str]) -> None:
        """Move these entries from memory to files."""
        for name in names:
            if name in self.in_memory:
                self._write(name, [self.in_memory[name]])
                self._free(name)

    def release_except(self, needed: set[str]) -> None:
        """Free the memory of all other entries."""
        for name in [name for name in self.in_memory if name not in needed]:
            self._free(name)

    def delete_except(self, needed: set[str]) -> None:
        """Free the memory and delete the files of all other entries."""
        self.release_except(needed)
        if self.folder.exists():
            for path in self.folder.iterdir():
                if path.name not in needed:
                    path.unlink()

    def _free(self, name: str) -> None:
        self.bytes_in_memory -= len(self.in_memory.pop(name))

    def continue_after(self, names: Iterable[str]) -> None:
        """Number new entries after these existing ones."""
        self.last_number = max((int(name.partition("-")[0]) for name in names), default=0)

    def _write(self, name: str, pieces: Iterable[Piece]) -> None:
        create_private_folder(self.folder)
        write_pieces_atomically(self.folder / name, pieces)
