"""Read plain text: one text per line, or one text per file."""

from __future__ import annotations

from motet.datasets.column_names import add_fixed_columns
from motet.datasets.data_file import DataFile
from motet.datasets.raw_table import TableBuilder


def read_text_lines(file: DataFile, table: TableBuilder) -> None:
    """Read one text per line, without empty lines."""
    texts = []
    for number, line in file.read_lines():
        if line.strip():
            texts.append(line)
        else:
            file.log.drop("empty lines", file.path, number)
    add_fixed_columns(file, table, {"text": texts}, "text", "one text per line")


def read_whole_text(file: DataFile, table: TableBuilder) -> None:
    """Read a file as one text."""
    add_fixed_columns(file, table, {"text": [file.read_text()]}, "text", "one text per file")
