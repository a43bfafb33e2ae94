"""Read JSON Lines with pyarrow, in batches. It is used only for files that it reads exactly as Python would."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.json

from motet.core.errors import DataError
from motet.datasets.column_names import check_any_column, config_key
from motet.datasets.compression import open_binary
from motet.datasets.data_file import DataFile
from motet.datasets.json_parsing import list_fields
from motet.datasets.raw_table import TableBuilder

BLOCK_SIZE = 1 << 20
SNIFFED_LINES = 100
UTF8_MARK = b"\xef\xbb\xbf"
TYPES: dict[frozenset[type], pa.DataType] = {
    frozenset(): pa.string(),  # not in the first lines: if it occurs later with another type, pyarrow fails
    frozenset([str]): pa.string(),
    frozenset([int]): pa.int64(),
    frozenset([bool]): pa.bool_(),
}


class LineCountingStream:
    """A binary file that counts the lines that are read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.closed = False
        self._num_line_feeds = 0
        self._last_byte = b"\n"

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        if data:
            self._num_line_feeds += data.count(b"\n")
            self._last_byte = data[-1:]
        return data

    def close(self) -> None:
        self.closed = True

    @property
    def num_lines(self) -> int:
        return self._num_line_feeds + (self._last_byte != b"\n")


def read_json_batches(file: DataFile, table: TableBuilder) -> bool:
    """Add the rows of a file to the table. Return False, and add nothing, if the file needs the slow reader."""
    if file.options.encoding not in (None, "utf-8", "utf8"):
        return False
    with open_binary(file.path) as stream:
        head = stream.read(BLOCK_SIZE)
    rows = _sniff_rows(head.removeprefix(UTF8_MARK))
    names = {name: column or name for name, column in file.options.column_names.items()}  # name in the file
    types = {} if rows is None else {name: _infer_type(name, column, rows) for name, column in names.items()}
    if rows is None or None in types.values():
        return False
    part = TableBuilder()
    try:
        with open_binary(file.path) as stream:
            counter = LineCountingStream(stream)
            present = _read_batches(counter, names, types, part)
    except (pa.ArrowException, DataError):
        return False
    if present is None or part.num_rows != counter.num_lines or not file.options.configured_columns.keys() <= present:
        return False
    table.absorb(part)
    file.log.add_file(file.path, "utf-8", "valid UTF-8", has_byte_order_mark=head.startswith(UTF8_MARK))
    log_columns(file, table, list(dict.fromkeys(name for row in rows for name, _ in list_fields(row))), present)
    return True


def log_columns(file: DataFile, table: TableBuilder, header: Sequence[str], present: Collection[str]) -> None:
    """Write to the log where each column comes from, and check that there is one."""
    check_any_column(file, list(present), header)
    used = set()
    for name, configured in file.options.column_names.items():
        if name in present:
            used.add(configured or name)
            reason = config_key(name) if configured else "same name"
            file.log.columns[name] = f"column '{configured or name}' ({reason})"
    others = (name for name in header if name not in used and name.partition(".")[0] not in used)
    table.other_columns.update(dict.fromkeys(others))


def _sniff_rows(head: bytes) -> list[dict[str, Any]] | None:
    """Parse the first lines; return None if one of them is not an object."""
    lines = head.split(b"\n")[: SNIFFED_LINES + 1]
    try:
        rows = [json.loads(line) for line in lines[:-1] or lines if line.strip()]
    except (ValueError, RecursionError):
        return None
    return rows if rows and all(isinstance(row, dict) for row in rows) else None


def _infer_type(name: str, column: str, rows: Sequence[Mapping[str, Any]]) -> pa.DataType | None:
    """Return the type of a column, or None if pyarrow might read a value differently than Python."""
    kinds = frozenset(type(row[column]) for row in rows if column in row)
    if name == "score" and kinds and kinds <= {int, float}:
        return pa.float64()
    return TYPES.get(kinds)


def _read_batches(
    stream: LineCountingStream, names: Mapping[str, str], types: Mapping[str, pa.DataType], table: TableBuilder
) -> set[str] | None:
    """Add all rows to the table. Return the columns that the file has, or None if a value is missing."""
    schema = pa.schema({names[name]: kind for name, kind in types.items()})
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reader = pyarrow.json.open_json(
        stream, read_options=pyarrow.json.ReadOptions(block_size=BLOCK_SIZE), parse_options=options
    )
    present: set[str] | None = None
    for batch in reader:
        if not len(batch):
            continue
        columns = {name: batch.column(column) for name, column in names.items()}
        columns = {name: array for name, array in columns.items() if array.null_count < len(batch)}
        if present is None:
            present = set(columns)
        if present != set(columns) or any(array.null_count for array in columns.values()):
            return None
        for array in columns.values():
            array.validate(full=True)  # pyarrow does not check that strings are UTF-8
        table.add_rows(range(table.num_rows + 1, table.num_rows + 1 + len(batch)), columns)
    return present
