"""The releases that a privacy accountant has counted, in a file that is written before each release."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from motet.atomic_files import open_in_place
from motet.core.errors import RunError
from motet.core.script import ClientId

FILE_NAME = "accountant.jsonl"


class AccountantLog:
    """The clients of every release, by its key. A crash after the write can only make ε too large, never too small.

    The same key means the same numbers with the same noise, so a release that a resumed run repeats counts once. Without
    a path the log is only in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.releases: dict[str, tuple[ClientId, ...]] = {}
        if path is not None and path.exists():
            for line in path.read_text("utf-8").splitlines():
                if line.endswith("]"):  # a crash may leave half a line; its release did not happen
                    key, clients = _parse_release(line, path)
                    self.releases[key] = clients

    def append(self, key: str, clients: Collection[ClientId]) -> bool:
        """Write a release and return True; return False if it is in the log already."""
        if key in self.releases:
            return False
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open_in_place(self.path, "a") as file:
                file.write(f"\n{json.dumps([key, sorted(clients)])}")  # first the line break: it ends half a line
                file.flush()
                os.fsync(file.fileno())
        self.releases[key] = tuple(clients)
        return True

    def sums_by_client(self) -> Counter[ClientId]:
        return Counter(client for clients in self.releases.values() for client in clients)


def _parse_release(line: str, path: Path) -> tuple[str, tuple[ClientId, ...]]:
    """Return the key and the clients of a release. A line that says something else may hide a release, so it is an error."""
    try:
        key, clients = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        key, clients = None, None
    if isinstance(key, str) and isinstance(clients, list) and all(isinstance(client, str) for client in clients):
        return key, tuple(clients)
    raise RunError(f"'{path}' is damaged: {line[:60]!r} is not a release. Restore it; without it, ε is not known.")
