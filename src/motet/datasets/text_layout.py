"""Recognize text files that hold something else than one text per line: tables, JSON, web pages."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence

DELIMITERS = (",", ";", "|", "\t")
MIN_TABLE_ROWS = 5  # fewer lines may have equally many commas by chance
MIN_ROWS_PER_VALUE = 2  # on average, in the column of a table with labels
PAGE_STARTS = ("<!doctype html", "<html", "<?xml")


def looks_like_columns(lines: Sequence[str]) -> bool:
    """True if every line has the same number of columns, separated by tabs; or if all are pairs, with blank lines."""
    rows = [line for line in lines if line.strip()]
    if len(rows) < 2:
        return False
    has_tabs = len({line.count("\t") for line in rows}) == 1 and "\t" in rows[0]
    return has_tabs or (len(rows) < len(lines) and all(len(line.split()) == 2 for line in rows))


def looks_like_header(lines: Sequence[str], column_names: Mapping[str, str | None]) -> bool:
    """True if the first line is the header of a table: it has at least two names of columns that Motet reads."""
    known = {column or name for name, column in column_names.items()}
    fields = (name.strip(' "').lower() for name in re.split("[,;\t|]", next(iter(lines), "")))
    return len(known.intersection(fields)) > 1


def describe_layout(lines: Sequence[str]) -> str:
    """Say what the lines are if they are no texts, and what to do; empty for texts."""
    rows = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not rows:
        return ""
    if is_json(rows[0]) or rows[0] in "[{":
        return "are JSON. Give the file the suffix .jsonl for one object per line, or .json"
    if rows[0].lower().startswith(PAGE_STARTS):
        return "are a web page or XML. Write its texts into a table, or one text per line"
    if all(row.startswith("__label__") for row in rows):
        return "begin with labels of fastText. Write a table with the columns text and label"
    if len(rows) > MIN_TABLE_ROWS and all('"' in row for row in rows) and _is_table(rows[1:], " "):
        return "are rows of a table with blanks between its columns. Write it with commas, as a .csv file"
    if len(rows) >= MIN_TABLE_ROWS and any(_is_table(rows, delimiter) for delimiter in DELIMITERS):
        return (
            "are rows of a table. Give the file the suffix .csv, and name the columns by number if there is no header"
        )
    return ""


def is_json(line: str) -> bool:
    """True for an object, and for an array of objects."""
    if not line.startswith(("{", "[")):
        return False
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value[0] if isinstance(value, list) and value else value, dict)


def _is_table(rows: Sequence[str], delimiter: str) -> bool:
    """True if all rows have the same number of fields, and the values of one column repeat like labels."""
    fields = list(csv.reader(rows, delimiter=delimiter))
    if len(fields) != len(rows) or len({len(row) for row in fields}) > 1 or len(fields[0]) < 2:
        return False
    return any(1 < len(set(column)) <= len(rows) / MIN_ROWS_PER_VALUE for column in zip(*fields, strict=True))
