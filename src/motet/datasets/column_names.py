"""Map the columns of a table to Motet's columns, and explain the choice in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motet.core.errors import DataError
from motet.core.suggestions import did_you_mean
from motet.datasets.data_file import GROUP_COLUMNS, NO_GROUP, DataFile
from motet.datasets.raw_table import TableBuilder

NUMBERED = (".csv", ".tsv", ".tab", ".xlsx", ".xlsm")
INVISIBLE = "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060"  # such as a second byte-order mark
TOP_LEVEL_KEYS = ("text", "label", "client")  # data.text; all others are in data.columns


def config_key(name: str) -> str:
    """Return the key of the recipe that names a column."""
    return f"data.{name}" if name in TOP_LEVEL_KEYS else f"data.columns.{name}"


def clean_names(header: Iterable[str]) -> list[str]:
    """Return the names of columns without blanks and invisible characters around them."""
    return [name.strip().strip(INVISIBLE).strip() for name in header]


def is_number(name: str | None) -> bool:
    return name is not None and name.isascii() and name.isdigit() and name != "0"


def is_headerless(file: DataFile) -> bool:
    """True if the recipe says so, or names all columns by number."""
    if file.options.header is not None:
        return not file.options.header
    columns = file.options.configured_columns.values()
    is_numbered = bool(columns) and all(is_number(column) for column in columns)
    if is_numbered:
        file.log.warn(
            "The columns are named by number, so the first row of a table is data. If it holds the names of the columns, set "
            "data.header=true; otherwise, data.header=false."
        )
    return is_numbered


def map_columns(file: DataFile, header: Sequence[str], allow_numbers: bool = False) -> dict[str, int]:
    """Return Motet's names and the indices of their columns. A number counts columns from 1."""
    indices: dict[str, int] = {}
    for name, configured in file.options.column_names.items():
        column = configured or name
        if header.count(column) > 1:
            raise DataError(f"{file.name}: the header names column '{column}' twice. Rename one of them.")
        if column in header:
            indices[name] = header.index(column)
            reason = config_key(name) if configured else "same name"
            file.log.columns[name] = f"column '{column}' ({reason})"
        elif allow_numbers and is_number(configured) and int(column) <= len(header):
            indices[name] = int(column) - 1
            file.log.columns[name] = f"column number {column} ({config_key(name)})"
        elif configured is not None and file.needs(name):
            raise missing_column_error(file, name, column, header)
    check_any_column(file, list(indices), header)
    return indices


def optional_groups(train: TableBuilder) -> dict[str, str]:
    """Return the value that groups of training rows have in a test file without them."""
    return {name: NO_GROUP for name in GROUP_COLUMNS if name in train.column_names}


def missing_column_error(file: DataFile, name: str, column: str, header: Sequence[str]) -> DataError:
    every = " Each file of training data needs it." if name in ("client", "domain") else ""
    return DataError(
        f"{file.name}: {config_key(name)} names column '{column}'; the file has {_list_names(header)}."
        f"{did_you_mean(column, header) or every}"
    )


def check_filled(file: DataFile, table: TableBuilder, indices: Mapping[str, int], header: Sequence[str]) -> None:
    """Raise an error if a column that the recipe names has no value. Any other column without a value is not used."""
    for name in indices.keys() - set(table.column_names):
        column = header[indices[name]]
        if name in file.options.configured_columns and file.needs(name):
            raise empty_column_error(file, name, column, header)
        file.log.columns.pop(name, None)
        table.other_columns[column] = None


def empty_column_error(file: DataFile, name: str, column: str, header: Sequence[str]) -> DataError:
    return DataError(
        f"{file.name}: {config_key(name)} names column '{column}', which has no value in any row. Fill it, or name another "
        f"column; the file has {_list_names(header)}."
    )


def check_any_column(file: DataFile, names: Sequence[str], header: Sequence[str]) -> None:
    """Raise an error if no column of the file is one of Motet's."""
    if names:
        return
    hint = ""
    if len(header) == 1 and (delimiter := next((d for d in ",;|\t" if d in header[0]), None)):
        hint = f"; if {delimiter!r} separates the columns, set data.delimiter to it"
    elif all(name[:1] + name[-1:] == '""' for name in header):
        hint = "; if quotation marks enclose the fields, set data.quoting=csv"
    elif file.suffix in NUMBERED:
        hint = "; if there is no header, give their numbers, such as data.text=2; if lines precede it, remove them"
    raise DataError(
        f"{file.name}: its columns are {_list_names(header)}; expected those of a task, such as text and label "
        f"(motet list tasks). Name the columns, for example data.text=… data.label=…{hint}"
    )


def _list_names(header: Sequence[str]) -> str:
    named = [name for name in header if name]
    return ", ".join(named[:20]) + (", …" if len(named) > 20 else "") if named else "without a name"


def add_fixed_columns(
    file: DataFile, table: TableBuilder, columns: Mapping[str, Sequence[Any]], unit: str, reason: str
) -> None:
    """Add the rows of a format with columns of its own. The recipe may use one of them under another name."""
    columns = dict(columns)
    for name, column in file.options.configured_columns.items():
        if column not in columns and not file.needs(name):
            continue
        if column not in columns:
            raise missing_column_error(file, name, column, list(columns))
        columns[name] = columns[column]
    file.log.columns.update(dict.fromkeys(columns, reason))
    count = len(next(iter(columns.values()), ()))
    table.start_file(file.name, unit, file.constants)
    table.add_rows(range(1, count + 1), columns)
