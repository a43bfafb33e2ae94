"""Replies whose turn has not come: in memory while they fit, else in files that have no name."""

from __future__ import annotations

import tempfile
from typing import IO, Any

from motet.transport.requests import Reply
from motet.wire import deserialize, encode_header
from motet.wire.value_files import map_file, write_value

Place = Any  # whatever orders them


class ReorderBuffer:
    """However many clients answer before their turn, the server's memory stays within `budget` bytes."""

    def __init__(self, budget: int = 2**28) -> None:
        self.budget, self.held = budget, 0
        self.replies: dict[Place, tuple[Reply | IO[bytes], int]] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self.replies

    def __len__(self) -> int:
        return len(self.replies)

    def put(self, place: Place, reply: Reply, size: int) -> None:
        """`size` is the bytes of its tensors. What lies on an accelerator was put there by this process, and stays there."""
        if self.replies and self.held + size > self.budget and _is_here(reply):
            file = tempfile.TemporaryFile()  # noqa: SIM115 - open until its turn
            write_value(reply, file)
            self.replies[place] = (file, 0)
        else:
            self.held += size
            self.replies[place] = (reply, size)

    def take(self, place: Place) -> Reply:
        kept, size = self.replies.pop(place)
        self.held -= size
        if isinstance(kept, Reply):
            return kept
        with kept:
            reply: Reply = deserialize(map_file(kept))
        return reply

    def places(self) -> list[Place]:
        return sorted(self.replies)


def _is_here(reply: Reply) -> bool:
    return all(isinstance(t, bytes) or t.device.type == "cpu" for t in encode_header(reply)[1])
