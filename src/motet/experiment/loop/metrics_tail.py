"""Read the rows that were added to metrics.jsonl since the last look, without reading the rest again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from motet.experiment.loop.metrics_log import Row, is_row

CHECKED_BYTES = 128  # before the cursor
MAX_LINE = 2**26  # bytes; a longer line is not read


class MetricsTail:
    """The rows of a run after a cursor, which is a text such as "4096-1f2e3d4c".

    The cursor holds the offset and a checksum of the bytes before it. A resumed run goes back to its checkpoint and
    writes other rows from there. Then the checksum does not match, `is_restart` is True, and all rows are read.
    """

    def __init__(self, folder: Path, cursor: str = "") -> None:
        self.path = folder / "metrics.jsonl"
        self.cursor = cursor
        self.is_restart = False

    def read(self) -> Iterator[Row]:
        """Yield the new rows, and move the cursor behind them. The last line waits until it is complete."""
        if not self.path.is_file():  # a pipe or a device would never end
            self.is_restart, self.cursor = bool(self.cursor), ""
            return
        with self.path.open("rb") as file:
            offset = _parse_offset(self.cursor)
            if offset and _make_cursor(file, offset) != self.cursor:
                self.is_restart, offset = True, 0
            file.seek(offset)
            while line := file.readline(MAX_LINE):
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                if (row := _parse_row(line)) is not None:
                    yield row
            self.cursor = _make_cursor(file, offset)


def _parse_offset(cursor: str) -> int:
    offset = cursor.partition("-")[0]
    return int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 20 else 0


def _make_cursor(file: BinaryIO, offset: int) -> str:
    start = max(0, offset - CHECKED_BYTES)
    file.seek(start)
    return f"{offset}-{zlib.crc32(file.read(offset - start)):08x}"


def _parse_row(line: bytes) -> Row | None:
    """Return a row; None for a line that is damaged, for instance by a full disk."""
    try:
        row: Row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if is_row(row) else None
