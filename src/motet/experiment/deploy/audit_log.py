"""A client's audit log: one line for everything that a server asked and everything that left, in a chain of hashes.

Lines are only appended, and each has the hash of the line before it. A line that is changed, removed or inserted breaks
the chain. A question is written, and flushed to the disk, before the client works on it, so that a crash forgets nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motet.atomic_files import name_full_disk
from motet.core.errors import ConfigError
from motet.missing_paths import describe_read_error

AUDIT_FILE = "audit.jsonl"
FIRST_HASH = "0" * 64
Entry = Mapping[str, Any]


class AuditLog:
    """An audit log that is open for writing. `entries` are the lines so far."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = path, clock
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_torn_line(path)
        self.entries: list[Entry] = read_audit_log(path) if path.exists() else []
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")

    @property
    def head(self) -> str:
        """The hash of the last line. Whoever knows it can detect that lines were cut off at the end."""
        return str(self.entries[-1]["hash"]) if self.entries else FIRST_HASH

    def append(self, event: str, **values: Any) -> None:
        """Write a line, and return when it is on the disk."""
        body = {"time": round(self.clock(), 3), "event": event, **values}
        entry = {**body, "previous": self.head}
        entry["hash"] = _hash_entry(entry)
        with name_full_disk(self.path):
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self.entries.append(entry)

    def close(self) -> None:
        self._file.close()


def read_audit_log(path: Path) -> list[Entry]:
    """Read a log and verify its chain of hashes. A last line without its end does not count: it is still being written."""
    entries: list[Entry] = []
    previous = FIRST_HASH
    for number, line in enumerate(_read_lines(path), 1):
        try:
            entry = json.loads(line)
            is_valid = entry["previous"] == previous and entry["hash"] == _hash_entry(entry)
        except (ValueError, TypeError, KeyError, RecursionError):
            is_valid = False
        if not is_valid:
            raise ConfigError(
                f"{path}, line {number}: the chain of hashes is broken, so this line or the one before it was changed, "
                "removed or inserted. Keep the file as evidence, and move it away to start a new one."
            )
        previous = entry["hash"]
        entries.append(entry)
    return entries


def has_torn_line(path: Path) -> bool:
    """Return True if the last line has no end: its client was killed while it wrote it, or is writing it now."""
    data = path.read_bytes()
    return bool(data) and not data.endswith(b"\n")


def format_entry(entry: Entry) -> str:
    """Return one line for people: the time, what happened, and its values. Line ends in texts of a server are visible."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry["time"]))
    hidden = ("time", "event", "previous", "hash")
    values = ", ".join(f"{name} {_shorten(value)}" for name, value in entry.items() if name not in hidden)
    return f"{when}  {entry['event']:8} {values}".replace("\n", "\\n")


def _shorten(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shorten(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shorten, value)) + "]"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text[:12] + "…" if len(text) == 64 and " " not in text else text


def _hash_entry(entry: Entry) -> str:
    body = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise ConfigError(
            f"audit log: {describe_read_error(path, error)} A client writes it in its --state-dir."
        ) from None


def _remove_torn_line(path: Path) -> None:
    """Remove a last line without its end, which a crash left. Nothing happened after it."""
    if not path.exists():
        return
    data = path.read_bytes()
    complete = data.rfind(b"\n") + 1
    if complete < len(data):
        os.truncate(path, complete)
