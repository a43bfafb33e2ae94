"""Compact columns: a few NumPy arrays instead of one Python object per row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np

BATCH_ROWS = 4096  # rows that are decoded at once
DIGEST_BATCH = 4096  # rows; part of the digest, so changing it changes every corpus fingerprint


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Strings as one UTF-8 buffer: row i is bytes[offsets[i] : offsets[i + 1]]."""

    bytes: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def from_values(values: Sequence[str]) -> TextColumn:
        encoded = [value.encode() for value in values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return TextColumn(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BATCH_ROWS):
            yield from self[start : start + BATCH_ROWS]

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            offsets = self.offsets[start : max(start, stop) + 1].tolist()
            data = self.bytes[offsets[0] : offsets[-1]].tobytes()
            return [data[a - offsets[0] : b - offsets[0]].decode() for a, b in pairwise(offsets)]
        row = _check_index(row, len(self))
        return self.bytes[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """Strings with few distinct values: an integer code per row, and the value of each code."""

    codes: np.ndarray
    names: tuple[str, ...]

    @staticmethod
    def from_values(values: Sequence[str]) -> CategoryColumn:
        names: dict[str, int] = {}
        codes = np.fromiter((names.setdefault(v, len(names)) for v in values), np.int32, count=len(values))
        return CategoryColumn(codes, tuple(names))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return (self.names[c] for c in self.codes.tolist())

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self.names[c] for c in self.codes[row].tolist()]
        return self.names[int(self.codes[_check_index(row, len(self))])]


@dataclass(frozen=True, eq=False)
class ListColumn:
    """Lists of strings or numbers: row i is values[offsets[i] : offsets[i + 1]]."""

    values: TextColumn | CategoryColumn | np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[list[Any]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, row: int) -> list[Any]: ...
    @overload
    def __getitem__(self, row: slice) -> list[list[Any]]: ...
    def __getitem__(self, row: int | slice) -> list[Any]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = _check_index(row, len(self))
        values = self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]
        return values.tolist() if isinstance(values, np.ndarray) else values


@dataclass(frozen=True, eq=False)
class SelectedColumn:
    """Some rows of a compact column, in any order, without a copy of their values."""

    column: TextColumn | ListColumn
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), BATCH_ROWS):
            yield from self[start : start + BATCH_ROWS]

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> list[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self.column[i] for i in self.rows[row].tolist()]
        return self.column[int(self.rows[row])]


def take(column: Sequence[Any], rows: np.ndarray) -> Any:
    """Return the given rows of a column; the values of compact columns are not copied."""
    match column:
        case SelectedColumn():
            return SelectedColumn(column.column, column.rows[rows])
        case TextColumn() | ListColumn():
            return SelectedColumn(column, rows)
        case CategoryColumn():
            return _take_categories(column, rows)
        case np.ndarray():
            return column[rows]
    return [column[i] for i in rows]


def _take_categories(column: CategoryColumn, rows: np.ndarray) -> CategoryColumn:
    """Select rows, and keep only the values that occur in them."""
    codes = column.codes[rows]
    is_used = np.bincount(codes, minlength=len(column.names)) > 0
    new_codes = np.cumsum(is_used) - 1
    names = tuple(name for name, used in zip(column.names, is_used.tolist(), strict=True) if used)
    return CategoryColumn(new_codes[codes].astype(column.codes.dtype), names)


CompactColumn = TextColumn | CategoryColumn | ListColumn | np.ndarray


def compact(values: Sequence[Any]) -> CompactColumn:
    """Return the most compact column that holds `values`."""
    if isinstance(values, TextColumn | CategoryColumn | ListColumn | np.ndarray):
        return values
    if isinstance(values, SelectedColumn):
        return compact(list(values))
    first = next(iter(values), "")
    if isinstance(first, str):
        is_categorical = len(set(values)) <= max(1000, len(values) // 10)
        return CategoryColumn.from_values(values) if is_categorical else TextColumn.from_values(values)
    if isinstance(first, list | tuple):
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(v) for v in values], out=offsets[1:])
        return ListColumn(_compact_elements([x for v in values for x in v]), offsets)
    return np.asarray(values)


def _compact_elements(elements: list[Any]) -> TextColumn | CategoryColumn | np.ndarray:
    if elements and not isinstance(elements[0], str):
        return np.asarray(elements)
    column = compact(elements)
    if isinstance(column, ListColumn):
        raise TypeError("a column cannot hold lists of lists")
    return column


def column_digest(column: Sequence[Any]) -> bytes:
    """Return a digest of the values, whatever type of column holds them."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(column), DIGEST_BATCH):
        digest.update("\0".join(map(str, column[start : start + DIGEST_BATCH])).encode())
        digest.update(b"\1")
    return digest.digest()


def _check_index(row: int, size: int) -> int:
    """Return a non-negative index, or raise IndexError."""
    if not -size <= row < size:
        raise IndexError(row)
    return row + size if row < 0 else row
