"""Read tables with named columns: CSV, TSV, JSON Lines and Parquet."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, DataError, did_you_mean, first_line

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")

NumberedRows = Iterator[tuple[int, dict[str, Any]]]  # line number and values by column


def read_table(path: Path, column_names: Mapping[str, str | None]) -> dict[str, list[Any]]:
    """Read the columns of a table under Motet's names.

    `column_names` maps Motet's names to the names in the file. A column that maps to None is optional and has the same
    name in the file.
    """
    rows = list(_read_rows(path))
    if not rows:
        raise DataError(f"{path.name}: the file has no rows; expected at least one.")
    header = list(rows[0][1])
    columns: dict[str, list[Any]] = {}
    for name, file_name in column_names.items():
        if file_name is None and name not in header:
            continue
        column = file_name or name
        if column not in header:
            raise DataError(
                f"{path.name}: data.{name} names column '{column}'; the file has {', '.join(header)}."
                f"{did_you_mean(column, header)}"
            )
        columns[name] = [_get_value(path, line, row, column) for line, row in rows]
    if not columns:
        raise DataError(
            f"{path.name}: its columns are {', '.join(header)}; expected some of {', '.join(column_names)}. "
            "Name the columns, for example data.text=… data.label=…"
        )
    return columns


def read_header(path: Path) -> list[str]:
    """Return the column names of a table."""
    return list(next(iter(_read_rows(path)), (0, {}))[1])


def _read_rows(path: Path) -> NumberedRows:
    match path.suffix.lower():
        case ".jsonl":
            return _read_jsonl(path)
        case ".parquet":
            return _read_parquet(path)
        case ".tsv":
            return _read_delimited(path, "\t")
    return _read_delimited(path, _detect_delimiter(path))


def _detect_delimiter(path: Path) -> str:
    """A comma, or a semicolon: spreadsheets use it in locales where the comma is the decimal point."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    return ";" if ";" in header and "," not in header else ","


def _get_value(path: Path, line: int, row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    if value is None:
        raise DataError(f"{path.name}, line {line}: column '{column}' has no value; every row needs one.")
    return value


def _read_delimited(path: Path, delimiter: str) -> NumberedRows:
    csv.field_size_limit(sys.maxsize)  # texts may be longer than the default limit of 128 KiB
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        try:
            for row in reader:
                yield reader.line_num, {str(k): v for k, v in row.items() if k is not None}
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                f"{path.name}, line {reader.line_num + 1}: {error}; expected UTF-8 text in columns."
            ) from None


def _read_jsonl(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(
                    f"{path.name}, line {number}: invalid JSON ({error}); expected one object per line."
                ) from None
            if not isinstance(row, dict):
                raise DataError(f"{path.name}, line {number}: expected a JSON object, found {type(row).__name__}.")
            yield number, row


def _read_parquet(path: Path) -> NumberedRows:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"data.path: '{path.name}' needs the package pyarrow. Run: pip install 'motet[hub]'"
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name}: not a Parquet file ({first_line(error)}).") from None
    yield from enumerate(table.to_pylist(), 1)
