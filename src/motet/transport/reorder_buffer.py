"""Holds replies that arrive before their turn, in memory up to a budget and then in unnamed temporary files."""

from __future__ import annotations

import tempfile
from typing import IO, Any

from motet.transport.requests import Reply
from motet.wire import deserialize, list_buffers
from motet.wire.value_files import map_file, write_value

Position = Any  # any sortable key


class ReorderBuffer:
    """Uses at most `budget` bytes of memory, plus one reply, however many clients reply early."""

    def __init__(self, budget: int = 2**28) -> None:
        self.budget, self.bytes_in_memory = budget, 0
        self.entries: dict[Position, tuple[Reply | IO[bytes], int]] = {}  # a reply or its file, and its bytes in memory

    def __contains__(self, position: Position) -> bool:
        return position in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def put(self, position: Position, reply: Reply, tensor_bytes: int) -> None:
        """Store a reply. Tensors on an accelerator were put there by this process, and stay there."""
        over_budget = self.bytes_in_memory + tensor_bytes > self.budget
        if self.entries and over_budget and _is_in_host_memory(reply):
            file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by take()
            write_value(reply, file)
            self.entries[position] = (file, 0)
        else:
            self.bytes_in_memory += tensor_bytes
            self.entries[position] = (reply, tensor_bytes)

    def take(self, position: Position) -> Reply:
        """Remove and return a reply."""
        entry, tensor_bytes = self.entries.pop(position)
        self.bytes_in_memory -= tensor_bytes
        if isinstance(entry, Reply):
            return entry
        with entry:
            reply: Reply = deserialize(map_file(entry))
        return reply

    def positions(self) -> list[Position]:
        return sorted(self.entries)


def _is_in_host_memory(reply: Reply) -> bool:
    return all(isinstance(buffer, bytes) or buffer.device.type == "cpu" for buffer in list_buffers(reply))
