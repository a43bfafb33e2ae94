"""Read tables of text: comma-separated, tab-separated and the like, with or without a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from motet.core.errors import DataError, first_line
from motet.datasets.column_names import clean_names, is_headerless, map_columns
from motet.datasets.data_file import DataFile
from motet.datasets.delimited_arrow import Dialect, read_delimited_batches
from motet.datasets.original_files import parse_csv_line
from motet.datasets.quote_counter import QuoteCounter
from motet.datasets.raw_table import TableBuilder
from motet.datasets.text_encoding import VALID_UTF8

DELIMITERS = (",", ";", "\t", "|")
BATCH_ROWS = 8192

NumberedRow = tuple[int, list[str]]  # number of the first line, and the fields


def read_delimited(file: DataFile, table: TableBuilder) -> None:
    """Read a table. Every row must have as many fields as the header."""
    table.start_file(file.name, "line", file.constants)
    if file.options.encoding is None:
        try:
            if _read(replace(file, assumed_encoding=VALID_UTF8), table, is_slow_allowed=False):
                return
        except DataError:  # perhaps another encoding
            pass
    _read(file, table, is_slow_allowed=True)


def _read(file: DataFile, table: TableBuilder, is_slow_allowed: bool) -> bool:
    """Read a table: with pyarrow if it can read the file exactly, otherwise row by row."""
    dialect, rows = open_table(file)
    header_row = next(rows, None)
    if header_row is None:
        raise DataError(f"{file.name}: the file has no rows; expected at least one.")
    if dialect.has_header:
        header = clean_names(header_row[1])
    else:
        header = [str(i + 1) for i in range(len(header_row[1]))]
        rows = chain([header_row], rows)
    indices = map_columns(file, header, allow_numbers=True)
    if dialect.has_header:
        table.other_columns.update(dict.fromkeys(name for i, name in enumerate(header) if i not in indices.values()))
    if header_row[0] == 1 and read_delimited_batches(file, table, dialect, len(header), indices):
        return True
    if not is_slow_allowed:
        return False
    counter = QuoteCounter(dialect.has_quotes)
    filled = (row for row in rows if len(header) == 1 or any(field.strip() for field in row[1]) or len(row[1]) > 1)
    checked = (_check_width(file, row, len(header)) for row in filled)
    _add_rows(table, indices, (_count_quotes(counter, row, dialect, indices.values()) for row in checked))
    counter.write_notes(file)
    return True


def open_table(file: DataFile) -> tuple[Dialect, Iterator[NumberedRow]]:
    """Return the dialect of a table and its rows, of which the first may be the header."""
    lines = _read_physical_lines(file)
    first = next((line for line in lines if line[1].strip()), (0, ""))
    if first[1].lower().startswith("sep="):  # Excel's way to name the delimiter
        delimiter = first[1][4:5]
        first = next(lines, (0, ""))
    else:
        delimiter = file.options.delimiter or _detect_delimiter(file, first[1])
    dialect = _detect_dialect(file, delimiter, first[1])
    return dialect, _read_rows(file, chain([first] if first[1] else [], lines), dialect)


def _add_rows(table: TableBuilder, indices: dict[str, int], rows: Iterator[NumberedRow]) -> None:
    batch: list[NumberedRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_ROWS:
            table.add_rows([n for n, _ in batch], {name: [f[i] for _, f in batch] for name, i in indices.items()})
            batch = []
    if batch:
        table.add_rows([n for n, _ in batch], {name: [f[i] for _, f in batch] for name, i in indices.items()})


def _read_physical_lines(file: DataFile) -> Iterator[tuple[int, str]]:
    """Yield numbered lines with their line ends. Only old Macintosh files, without line feeds, end lines with \\r."""
    number = 0
    for block in file.read_blocks():
        newline = "\r" if number == 0 and "\n" not in block and "\r" in block.rstrip("\r") else "\n"
        for line in io.StringIO(block if newline == "\n" else block.replace("\r", "\n")):
            number += 1
            yield number, line


def _detect_delimiter(file: DataFile, line: str) -> str:
    """Return the delimiter that gives the most known column names, else the most fields; a comma if in doubt."""
    if file.suffix in (".tsv", ".tab"):
        return "\t"
    known = {column or name for name, column in file.options.column_names.items()}
    header = line.replace("\r", " ").strip("\n ")
    candidates = {d: clean_names(next(csv.reader([header], delimiter=d), [])) for d in DELIMITERS}
    scores = {d: (len(known & set(names)), len(names)) for d, names in candidates.items()}
    if max(score for score, _ in scores.values()) > 0:
        return max(DELIMITERS, key=lambda d: scores[d][0])
    if "," in line and not is_headerless(file):
        return ","
    return max(DELIMITERS, key=lambda d: scores[d][1])


def _detect_dialect(file: DataFile, delimiter: str, line: str) -> Dialect:
    quoting = file.options.quoting
    names = parse_csv_line(line.strip("\r\n")) if delimiter == "," else line.strip("\r\n").split(delimiter)
    if delimiter != "," and file.suffix == ".csv":
        file.log.note(f"{file.name}: the delimiter is {delimiter!r}.")
    return Dialect(
        delimiter=delimiter,
        has_quotes=quoting == "csv" or (quoting == "auto" and file.suffix not in (".tsv", ".tab")),
        has_header=not is_headerless(file),
        skips_blanks=len(names) > 1 and delimiter != "\t" and all(name.startswith(" ") for name in names[1:]),
    )


def _read_rows(file: DataFile, lines: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[NumberedRow]:
    """Yield the rows without blank lines."""
    if not dialect.has_quotes:
        for number, line in lines:
            if line.strip("\r\n "):
                fields = line.rstrip("\r\n").split(dialect.delimiter)
                yield number, [f.lstrip(" ") for f in fields] if dialect.skips_blanks else fields
        return
    numbers: list[int] = []  # the lines of the current row

    def feed() -> Iterator[str]:
        for number, line in lines:
            numbers.append(number)
            yield line

    reader = csv.reader(feed(), delimiter=dialect.delimiter, strict=True, skipinitialspace=dialect.skips_blanks)
    while True:
        numbers.clear()
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _quote_error(file, numbers[0], numbers[-1], error) from None
        if row is None:
            return
        if row:
            yield numbers[0], row


def _quote_error(file: DataFile, start: int, end: int, error: csv.Error) -> DataError:
    place = f"line {start}" if start >= end else f"lines {start} to {end}"
    if "new-line character" in str(error):
        return DataError(
            f"{file.name}, {place}: a carriage return is within a field. Put the field in quotation marks, or remove it."
        )
    return DataError(
        f"{file.name}, {place}: a field in quotation marks does not end correctly ({first_line(error)}). Write a "
        'quotation mark within such a field as "", or set data.quoting=none if quotation marks are part of the text.'
    )


def _check_width(file: DataFile, row: NumberedRow, width: int) -> NumberedRow:
    number, fields = row
    if len(fields) < width:
        raise DataError(
            f"{file.name}, line {number}: the row has {len(fields)} of {width} fields. Add the missing fields or remove "
            "the row; if quotation marks mark fields of several lines, set data.quoting=csv."
        )
    if any(field.strip() for field in fields[width:]):
        raise DataError(
            f"{file.name}, line {number}: the row has {len(fields)} fields, but there are {width} columns. Put a field "
            "that contains the delimiter in quotation marks, or name the delimiter with data.delimiter=…"
        )
    return number, fields


def _count_quotes(counter: QuoteCounter, row: NumberedRow, dialect: Dialect, indices: Iterable[int]) -> NumberedRow:
    number, fields = row
    if dialect.has_quotes:
        counter.add_row(number, sum(field.count("\n") for field in fields) + 1)
    counter.add_fields(fields[i] for i in indices)
    return row
