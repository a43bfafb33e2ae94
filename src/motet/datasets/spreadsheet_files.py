"""Read Excel workbooks: one sheet, with the column names in its first row."""

from __future__ import annotations

import io
import warnings
from typing import Any

from motet.core.errors import ConfigError, DataError, first_line
from motet.core.install_hint import install_command
from motet.core.suggestions import did_you_mean
from motet.datasets.column_names import clean_names, is_headerless, map_columns
from motet.datasets.compression import open_binary
from motet.datasets.data_file import DataFile
from motet.datasets.raw_table import OPTIONAL_VALUES, REMOVE_OR_RENAME, TableBuilder

TEXT_COLUMNS = ("text", "second", "context", "question", "source", "target")


def read_spreadsheet(file: DataFile, table: TableBuilder) -> None:
    """Read the sheet data.sheet, or the only sheet."""
    rows = read_sheet(file)
    file.log.add_file(file.path)
    table.start_file(file.name, "row", file.constants)
    _add_rows(file, table, rows)


def read_sheet(file: DataFile) -> list[tuple[int, list[Any]]]:
    """Return the rows that are not empty with their numbers; the first may be the header."""
    try:
        import openpyxl
    except ImportError:
        raise ConfigError(
            f"{file.name}: reading Excel files needs the package openpyxl. Run: {install_command('xlsx')}"
        ) from None
    with open_binary(file.path) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles
        try:
            source = stream if stream.seekable() else io.BytesIO(stream.read())
            book = openpyxl.load_workbook(source, read_only=True, data_only=True)
            rows = enumerate(_choose_sheet(file, book).iter_rows(values_only=True), 1)
            return [(number, list(row)) for number, row in rows if any(value is not None for value in row)]
        except DataError:
            raise
        except Exception as error:  # a damaged file can raise anything in openpyxl
            raise DataError(
                f"{file.name}: the workbook cannot be read ({first_line(error)}). Save it again as .xlsx, or as .csv."
            ) from None


def _choose_sheet(file: DataFile, book: Any) -> Any:
    names = book.sheetnames
    name = file.options.sheet
    if name is not None and name not in names:
        raise DataError(
            f"{file.name}: data.sheet is '{name}'; the sheets are {', '.join(names)}.{did_you_mean(name, names)}"
        )
    if name is None and len(book.worksheets) != 1:
        raise DataError(f"{file.name}: there are several sheets ({', '.join(names)}). Set data.sheet to one of them.")
    return book[name] if name is not None else book.worksheets[0]


def _add_rows(file: DataFile, table: TableBuilder, rows: list[tuple[int, list[Any]]]) -> None:
    if not rows:
        raise DataError(f"{file.name}: the sheet is empty; expected column names and rows.")
    header = clean_names("" if value is None else str(value) for value in rows[0][1])
    if is_headerless(file):
        header = [str(i + 1) for i in range(len(header))]
    else:
        rows = rows[1:]
    indices = map_columns(file, header, allow_numbers=True)
    table.other_columns.update(
        dict.fromkeys(name for i, name in enumerate(header) if name and i not in indices.values())
    )
    for number, row in rows:
        values = {name: _to_value(name, row[i] if i < len(row) else None) for name, i in indices.items()}
        values = {name: OPTIONAL_VALUES.get(name) if value is None else value for name, value in values.items()}
        missing = next((name for name, value in values.items() if value is None), None)
        if missing is not None:
            raise DataError(
                f"{file.name}, row {number}: column '{missing}' has no value. Every row needs one: {REMOVE_OR_RENAME}"
            )
        table.add_row(number, values)


def _to_value(name: str, value: Any) -> Any:
    """Return a cell. In a column of texts, a cell that looks like a number is a text."""
    if name in TEXT_COLUMNS and type(value) in (int, float):
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
    return value
