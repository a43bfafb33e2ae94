"""Your own files: csv, tsv or jsonl with a text column and a label column."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from motet.core.errors import DataError, meant

READERS = (".csv", ".tsv", ".jsonl")


def read_table(path: Path, names: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Columns by our names (text, label, client). `names` says what the file calls them; None: the same, if it is there."""
    if not path.exists():
        raise DataError(f"data.path: there is no file '{path}'; give the path of a {', '.join(READERS)} file.")
    if path.suffix not in READERS:
        raise DataError(f"data.path: '{path.name}' ends in '{path.suffix}'; Motet reads {', '.join(READERS)}.")
    rows = list(_jsonl(path) if path.suffix == ".jsonl" else _separated(path))
    if not rows:
        raise DataError(f"{path.name}: the file has no rows; expected at least one with a text and a label.")
    columns: dict[str, list[str]] = {}
    has = list(rows[0][1])
    for ours, theirs in names.items():
        if theirs is None and ours not in has:
            continue
        column = theirs or ours
        if column not in has:
            raise DataError(
                f"{path.name}: data.{ours} names column '{column}'; the file has {', '.join(has)}.{meant(column, has)}"
            )
        columns[ours] = [_value(path, line, row, column) for line, row in rows]
    if "text" not in columns:
        raise DataError(f"{path.name}: there is no column 'text'; it has {', '.join(has)}. Say which one: data.text=…")
    return columns


def _value(path: Path, line: int, row: Mapping[str, object], column: str) -> str:
    value = row.get(column)
    if value is None:
        raise DataError(f"{path.name}, line {line}: column '{column}' has no value; every row needs one.")
    return str(value)


def _separated(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        for row in reader:
            yield reader.line_num, {str(k): v for k, v in row.items() if k is not None}


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path.name}, line {number}: this is no JSON ({error}); expected one object a line.") from None
            if not isinstance(row, dict):
                raise DataError(f"{path.name}, line {number}: expected a JSON object, found {type(row).__name__}.")
            yield number, row
