"""Read the first rows of a table with all of its columns, whatever they are called."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.column_names import clean_names
from motet.datasets.compression import strip_compression_suffix
from motet.datasets.data_file import DataFile, ReadOptions
from motet.datasets.delimited_files import open_table
from motet.datasets.json_parsing import list_fields
from motet.datasets.read_log import ReadLog
from motet.datasets.spreadsheet_files import read_sheet

PREVIEW_ROWS = 500
MAX_LINE_LENGTH = 10_000_000  # characters; a longer line is not one row of a table, and its fields take gigabytes
MAX_NAME_LENGTH = 40
Preview = dict[str, list[str]]


def preview_table(path: Path, options: ReadOptions = ReadOptions()) -> Preview:
    """Return the columns of the first rows as texts. For a folder, those of its first table. Empty: not a table."""
    if path.is_dir():
        tables = sorted(file for file in path.rglob("*") if _suffix(file) in _READERS and file.is_file())
        return preview_table(tables[0], options) if tables else {}
    read = _READERS.get(_suffix(path))
    if read is None:
        return {}
    try:
        rows = read(DataFile(path, options, ReadLog(path)))
    except (DataError, ValueError, OSError, csv.Error):
        return {}
    return _collect_columns(rows)


def _suffix(path: Path) -> str:
    return strip_compression_suffix(path).suffix.lower()


def _collect_columns(rows: Iterable[Mapping[str, Any]]) -> Preview:
    columns: Preview = {}
    for row in rows:
        for name, value in row.items():
            if value is not None and name:
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                columns.setdefault(name.strip(), []).append(text)
    return columns


def _read_delimited(file: DataFile) -> Iterable[Mapping[str, Any]]:
    if any(len(line) > MAX_LINE_LENGTH for _, line in islice(file.read_lines(), PREVIEW_ROWS + 1)):
        return []
    _, rows = open_table(file)
    return _name_columns([fields for _, fields in islice(rows, PREVIEW_ROWS + 1)])


def _read_spreadsheet(file: DataFile) -> Iterable[Mapping[str, Any]]:
    rows = read_sheet(file)[: PREVIEW_ROWS + 1]
    return _name_columns([["" if value is None else str(value) for value in row] for _, row in rows])


def _name_columns(rows: list[list[str]]) -> Iterable[Mapping[str, Any]]:
    """Return the rows with the names of their columns. Without a header, columns have numbers."""
    if not rows:
        return []
    header = [str(number) for number in range(1, len(rows[0]) + 1)]  # the recipe counts columns from 1
    if _is_header(rows[0], rows[1:]):
        header = clean_names(rows.pop(0))
    named = [name for name in header if name]
    if len(set(named)) < len(named):  # the reader says which name occurs twice
        return []
    return [dict(zip(header, row, strict=False)) for row in rows]


def _is_header(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """False if a name is long or a number, or occurs again in its column: then it is a value of the first row.

    A name may be missing: pandas writes its index so, and tables that end each line with a delimiter have such a column.
    """
    if not any(names) or any(len(name) > MAX_NAME_LENGTH or _is_number(name) for name in names):
        return False
    return not any(name and name == value for row in rows for name, value in zip(names, row, strict=False))


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdigit()


def _read_json(file: DataFile) -> Iterable[Mapping[str, Any]]:
    first_lines = [line for _, line in islice(file.read_lines(), PREVIEW_ROWS) if line.strip()]
    if first_lines and first_lines[0].lstrip().startswith("["):
        rows = json.loads(file.read_text())[:PREVIEW_ROWS]
    else:
        rows = [json.loads(line) for line in first_lines]
    return [dict(list_fields(row)) for row in rows if isinstance(row, dict)]


def _read_parquet(file: DataFile) -> Iterable[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(file.path).iter_batches(batch_size=PREVIEW_ROWS)
    rows: Sequence[Mapping[str, Any]] = next(iter(batches)).to_pylist()
    return rows


_READERS: dict[str, Callable[[DataFile], Iterable[Mapping[str, Any]]]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".tab": _read_delimited,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".xlsx": _read_spreadsheet,
    ".xlsm": _read_spreadsheet,
}
