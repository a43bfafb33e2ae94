"""Memories of clients who keep their own: they outlive the process, and can go back to what they were before any request."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from motet.core.script import ClientId
from motet.transport.requests import Request
from motet.transport.spill_store import write_pieces_atomically
from motet.wire import iter_serialized
from motet.wire.value_files import load_value

Key = tuple[str, ClientId]


class Journal:
    """What each request left behind, by the request's number.

    A server that was killed asks again from its last checkpoint on. A request numbered n finds the memories as requests
    before n left them, so it is answered as it was the first time; what the server has in a checkpoint is not kept twice.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.versions: dict[Key, dict[int, Any]] = {}  # the value itself, or None for one that lies in the folder
        self.now: dict[ClientId, int] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                number, *key = path.name.split("@")
                if len(key) == 2 and number.isdigit():
                    program, client = map(unquote, key)
                    self.versions.setdefault((program, client), {})[int(number)] = None

    def turn(self, request: Request) -> None:
        """This request is next for its client. One with a negative number only looks, and leaves nothing."""
        self.now[request.client] = request.id
        if request.id < 0:
            return
        for key, versions in self.versions.items():
            if key[1] == request.client:
                settled = max((n for n in versions if n <= request.settled), default=0)
                for number in [n for n in versions if n >= request.id or n < settled]:
                    self._drop(key, number)

    def get(self, program: str, client: ClientId) -> Any:
        versions = self.versions.get((program, client))
        if not versions:
            return None
        last = max(versions)
        if self.folder is None:
            return versions[last]
        return load_value(self._path((program, client), last))

    def put(self, program: str, client: ClientId, value: Any) -> None:
        number, key = self.now.get(client, 0), (program, client)
        if number < 0:
            return
        if self.folder is not None:
            write_pieces_atomically(self._path(key, number), iter_serialized(value))
        self.versions.setdefault(key, {})[number] = value if self.folder is None else None

    def _drop(self, key: Key, number: int) -> None:
        del self.versions[key][number]
        if self.folder is not None:
            self._path(key, number).unlink(missing_ok=True)

    def _path(self, key: Key, number: int) -> Path:
        if self.folder is None:
            raise RuntimeError("a journal without a folder has no files")
        return self.folder / "@".join((f"{number:012d}", *(quote(part, safe="") for part in key)))
