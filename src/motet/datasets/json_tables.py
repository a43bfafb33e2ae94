"""Read JSON: one object per line, an array of objects, or SQuAD's format."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from motet.core.errors import DataError
from motet.datasets.column_names import add_fixed_columns, empty_column_error, missing_column_error
from motet.datasets.compression import open_binary
from motet.datasets.data_file import DataFile
from motet.datasets.json_arrow import log_columns, read_json_batches
from motet.datasets.json_parsing import DECODER, check_characters, find_field, list_fields, parse_json
from motet.datasets.raw_table import TableBuilder
from motet.datasets.squad_json import parse_squad

_OBJECTS = re.compile(rb"\s*\[\s*\{")
HEAD_SIZE = 100
_BLANK = re.compile(r"[ \t\r\n]*")


class JsonRows:
    """Adds objects to a table. Any row may bring a new column; the first does not decide."""

    def __init__(self, file: DataFile, table: TableBuilder) -> None:
        self.file = file
        self.table = table
        self.names = [(name, column or name) for name, column in file.options.column_names.items()]
        self.fields = [(name, column) for name, column in file.options.configured_columns.items() if "." in column]
        self.header: dict[str, None] = {}  # the columns, also those in objects
        self._known: dict[str, None] = {}
        self._present: set[str] = set()  # Motet's names of the columns that have a value

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        values = {name: row[column] for name, column in self.names if column in row}
        for name, column in self.fields:
            if name not in values and (value := find_field(row, column)) is not None:
                values[name] = value
        self._present.update(name for name, value in values.items() if value is not None)
        self.table.add_row(number, values)
        if row.keys() - self._known.keys():
            self._known.update(dict.fromkeys(row))
            self.header.update(dict.fromkeys(name for name, _ in list_fields(row)))

    def finish(self) -> None:
        """Check that the configured columns exist, and write the log."""
        header = list(self.header)
        if not self._known:
            raise DataError(f"{self.file.name}: the file has no rows; expected at least one JSON object.")
        for name, column in self.file.options.configured_columns.items():
            if name not in self._present and self.file.needs(name):
                error = empty_column_error if column in header else missing_column_error
                raise error(self.file, name, column, header)
        log_columns(self.file, self.table, header, self._present)


def read_json_lines(file: DataFile, table: TableBuilder) -> None:
    """Read one object per line: with pyarrow if it can read the file exactly, otherwise line by line."""
    with open_binary(file.path) as stream:
        is_array = _OBJECTS.match(stream.read(HEAD_SIZE).removeprefix(codecs.BOM_UTF8))
    if is_array:
        read_json_file(file, table)
        return
    table.start_file(file.name, "line", file.constants)
    if not read_json_batches(file, table):
        _read_lines(file, table)


def _read_lines(file: DataFile, table: TableBuilder) -> None:
    rows = JsonRows(file, table)
    for number, line in file.read_lines():
        if line.strip():
            rows.add(number, _to_row(file, f"line {number}", _parse(file, f"line {number}", line)))
    rows.finish()


def read_json_file(file: DataFile, table: TableBuilder) -> None:
    """Read an array of objects, one object per line, or a SQuAD file."""
    head = next(file.read_blocks(may_cut_lines=True), "")
    start = _BLANK.match(head).end()  # type: ignore[union-attr]
    if head[start : start + 1] == "[":
        table.start_file(file.name, "row", file.constants)
        rows = JsonRows(file, table)
        for number, value in enumerate(JsonArray(file), 1):
            rows.add(number, _to_row(file, f"row {number}", value))
        rows.finish()
    elif _has_lines(next(file.read_blocks(), "")):
        read_json_lines(file, table)
    else:
        _read_object(file, table)


def _has_lines(head: str) -> bool:
    """True if the first line is a complete object, and another line follows."""
    first, _, rest = head.lstrip().partition("\n")
    try:
        return bool(rest.strip()) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _read_object(file: DataFile, table: TableBuilder) -> None:
    """Read a file that is one object: SQuAD's format, a list of rows under the key `data`, or a single row."""
    value = _to_row(file, "the file", _parse(file, "the file", file.read_text()))
    data = value.get("data")
    if isinstance(data, list) and any(isinstance(entry, dict) and "paragraphs" in entry for entry in data):
        add_fixed_columns(file, table, parse_squad(file.path, value, file.log), "question", "SQuAD's format")
        return
    if not isinstance(data, list) and value and all(map(_holds_rows, value.values())):
        raise DataError(
            f"{file.name}: the file is one object with the keys {', '.join(list(value)[:5])}; expected an array of rows. "
            "Write each split to a file of its own; in pandas, use orient='records'."
        )
    table.start_file(file.name, "row", file.constants)
    rows = JsonRows(file, table)
    for number, row in enumerate(data if isinstance(data, list) else [value], 1):
        rows.add(number, _to_row(file, f"row {number}", row))
    rows.finish()


def _holds_rows(value: Any) -> bool:
    """True for an array of objects, and for an object such as a column of pandas: {"0": …, "1": …}."""
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(row, dict) for row in value))


class JsonArray:
    """Yields the elements of an array one by one, so that a file of many lines is never in memory as a whole."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.count = 0
        self._blocks = file.read_blocks(may_cut_lines=True)
        self._buffer = ""
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        self._take("[")
        if self._peek() != "]":
            yield self._decode()
            while self._peek() == ",":
                self._take(",")
                yield self._decode()
        self._take("]")
        if self._peek():
            raise self._error("text after the end of the array")

    def _decode(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._position)
            except (ValueError, RecursionError) as error:
                if not self._fill():
                    raise self._error(str(error)) from None
            else:
                check_characters(f"{self.file.name}, row {self.count + 1}", value, self._buffer[self._position : end])
                self._position = end
                self.count += 1
                return value

    def _peek(self) -> str:
        """Return the next character that is not blank, or an empty string at the end."""
        while True:
            self._position = _BLANK.match(self._buffer, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._buffer) or not self._fill():
                return self._buffer[self._position : self._position + 1]

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected '{character}'")
        self._position += 1

    def _fill(self) -> bool:
        """Read as much text as there is already, so that long elements are not decoded too often."""
        size = len(self._buffer) - self._position
        more: list[str] = []
        for block in self._blocks:
            more.append(block)
            if sum(map(len, more)) >= size:
                break
        self._buffer, self._position = self._buffer[self._position :] + "".join(more), 0
        return bool(more)

    def _error(self, problem: str) -> DataError:
        return DataError(
            f"{self.file.name}, after row {self.count}: invalid JSON ({problem}); expected an array of objects."
        )


def _parse(file: DataFile, place: str, text: str) -> Any:
    return parse_json(f"{file.name}, {place}", text, "; expected one object per line.")


def _to_row(file: DataFile, place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{file.name}, {place}: expected a JSON object, found {type(value).__name__}.")
    return value
