"""Collect the rows of one or more files, with the position of each row for error messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from motet.core.errors import DataError
from motet.datasets.column_builder import ColumnBuilder, RawColumn

REMOVE_OR_RENAME = "remove such rows; rename the column if Motet should not read it."
OPTIONAL_VALUES = {"input": ""}  # columns that a row may lack, and what it then has


class RowPositions:
    """Where each row was found. Consecutive lines take no memory."""

    def __init__(self) -> None:
        self._rows: list[int] = []  # the first row of each run of consecutive positions
        self._starts: list[tuple[str, str, int]] = []  # its file, unit and number
        self._file, self._unit = "", ""
        self._next = -1  # the number that the next row has if it follows directly

    def start_file(self, name: str, unit: str) -> None:
        self._file, self._unit, self._next = name, unit, -1

    def append(self, row: int, number: int, count: int = 1) -> None:
        if number != self._next:
            self._rows.append(row)
            self._starts.append((self._file, self._unit, number))
        self._next = number + count

    def extend(self, row: int, other: RowPositions, num_rows: int) -> None:
        """Append the positions of `num_rows` rows of the current file."""
        ends = [*other._rows[1:], num_rows]
        for first, end, (_, _, number) in zip(other._rows, ends, other._starts, strict=False):
            self.append(row + first, number, end - first)

    def describe(self, row: int) -> str:
        """Return for example `train.csv, line 7`."""
        run = bisect_right(self._rows, row) - 1
        file, unit, number = self._starts[run]
        return f"{file}, {unit} {number + row - self._rows[run]}"


@dataclass(frozen=True)
class RawTable:
    """Columns with Motet's names and unconverted values, and where their rows come from."""

    columns: Mapping[str, RawColumn]
    positions: RowPositions
    num_rows: int


class TableBuilder:
    """Collects rows. In all files together, a column has a value in every row, or in none."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.other_columns: dict[str, None] = {}  # names of columns in the files that are not used
        self._columns: dict[str, ColumnBuilder] = {}
        self._positions = RowPositions()
        self._first_rows: dict[str, int] = {}  # the row with which a column starts
        self._constants: Mapping[str, str] = {}

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def start_file(self, name: str, unit: str = "line", constants: Mapping[str, str] | None = None) -> None:
        """Begin a file. `unit` says what the numbers of its rows count: lines, rows, sentences.

        `constants` are columns with the same value in each row; a column of the file has priority.
        """
        self._positions.start_file(name, unit)
        self._constants = constants or {}

    def add_row(self, number: int, values: Mapping[str, Any]) -> None:
        """Add one row; None and missing values are the same."""
        self._positions.append(self.num_rows, number)
        for name, value in values.items():
            if value is not None:
                self._column(name).append(value)
        self._finish_rows(1, values)

    def add_rows(self, numbers: Sequence[int], columns: Mapping[str, Sequence[Any] | pa.Array]) -> None:
        """Add a batch of rows without missing values."""
        if isinstance(numbers, range):
            self._positions.append(self.num_rows, numbers.start, len(numbers))
        else:
            for row, number in enumerate(numbers, self.num_rows):
                self._positions.append(row, number)
        for name, values in columns.items():
            if isinstance(values, pa.Array):
                self._column(name).append_array(values)
            else:
                self._column(name).extend(values)
        self._finish_rows(len(numbers), columns)

    def absorb(self, other: TableBuilder) -> None:
        """Add the rows of one file that another builder has collected."""
        self._positions.extend(self.num_rows, other._positions, other.num_rows)
        for name, builder in other._columns.items():
            if self.num_rows == 0:
                self._columns[name], self._first_rows[name] = builder, 0
            else:
                self._column(name).append_column(builder.build())
        self._finish_rows(other.num_rows, other._columns)

    def build(self) -> RawTable:
        return RawTable(
            columns={name: builder.build() for name, builder in self._columns.items()},
            positions=self._positions,
            num_rows=self.num_rows,
        )

    def _column(self, name: str) -> ColumnBuilder:
        if name not in self._columns:
            self._columns[name] = ColumnBuilder()
            self._first_rows[name] = self.num_rows
            self._fill(name)
        return self._columns[name]

    def _fill(self, name: str) -> None:
        """Add the values of earlier rows that lack an optional column."""
        if name in OPTIONAL_VALUES:
            self._columns[name].extend([OPTIONAL_VALUES[name]] * (self.num_rows - self._columns[name].size))

    def _finish_rows(self, count: int, names: Mapping[str, Any]) -> None:
        for name, value in self._constants.items():
            if name not in names:
                self._column(name).extend([value] * count)
        self.num_rows += count
        for name, builder in self._columns.items():
            self._fill(name)
            if builder.size != self.num_rows:
                first = self._first_rows[name]
                raise self._missing_error(name, *((0, first) if first else (builder.size, 0)))

    def _missing_error(self, name: str, missing: int, present: int) -> DataError:
        places = [self._positions.describe(row) for row in (missing, present)]
        files = {place.rpartition(", ")[0] for place in places}
        advice = (
            " To leave a file out, set data.path to one file, or data.files to a pattern." if len(files) > 1 else ""
        )
        return DataError(
            f"{places[0]}: column '{name}' has no value, but {places[1]} has one. Every row needs one: add it, or "
            f"{REMOVE_OR_RENAME}{advice}"
        )
