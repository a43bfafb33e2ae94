"""Tables: csv, tsv, jsonl or parquet, a column for each thing."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, DataError, did_you_mean, first_line

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_table(path: Path, names: Mapping[str, str | None]) -> dict[str, list[Any]]:
    """Columns by our names. `names` says what the file calls them; None: the same, if it is there."""
    rows = list(_rows(path))
    if not rows:
        raise DataError(f"{path.name}: the file has no rows; expected at least one.")
    has = list(rows[0][1])
    columns: dict[str, list[Any]] = {}
    for ours, theirs in names.items():
        if theirs is None and ours not in has:
            continue
        column = theirs or ours
        if column not in has:
            raise DataError(
                f"{path.name}: data.{ours} names column '{column}'; the file has {', '.join(has)}.{did_you_mean(column, has)}"
            )
        columns[ours] = [_value(path, line, row, column) for line, row in rows]
    if not columns:
        raise DataError(
            f"{path.name}: none of its columns ({', '.join(has)}) is called {', '.join(list(names)[:4])}, …. "
            "Say which is which, such as data.text=… data.label=…"
        )
    return columns


def read_header(path: Path) -> list[str]:
    """What the file calls its columns."""
    return list(next(iter(_rows(path)), (0, {}))[1])


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    match path.suffix.lower():
        case ".jsonl":
            return _jsonl(path)
        case ".parquet":
            return _parquet(path)
        case ".tsv":
            return _separated(path, "\t")
    return _separated(path, _between(path))


def _between(path: Path) -> str:
    """Commas; semicolons in a file as spreadsheets write it where the comma is the decimal point."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        names = file.readline()
    return ";" if ";" in names and "," not in names else ","


def _value(path: Path, line: int, row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    if value is None:
        raise DataError(f"{path.name}, line {line}: column '{column}' has no value; every row needs one.")
    return value


def _separated(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the module expects of a field
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        try:
            for row in reader:
                yield reader.line_num, {str(k): v for k, v in row.items() if k is not None}
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                f"{path.name}, line {reader.line_num + 1}: {error}; expected UTF-8 text in columns."
            ) from None


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(
                    f"{path.name}, line {number}: this is no JSON ({error}); expected one object a line."
                ) from None
            if not isinstance(row, dict):
                raise DataError(f"{path.name}, line {number}: expected a JSON object, found {type(row).__name__}.")
            yield number, row


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"data.path: '{path.name}' needs a package to be read; run: pip install 'motet[hub]'"
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name}: this is no parquet file ({first_line(error)}).") from None
    yield from enumerate(table.to_pylist(), 1)
