"""Columns of a corpus as a few arrays instead of a Python object a row: a million texts cost their bytes and no more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Strings, end to end as UTF-8: row i is bytes[offsets[i] : offsets[i + 1]]."""

    bytes: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def from_values(values: Sequence[str]) -> TextColumn:
        coded = [value.encode() for value in values]
        offsets = np.zeros(len(coded) + 1, np.int64)
        np.cumsum([len(c) for c in coded], out=offsets[1:])
        return TextColumn(np.frombuffer(b"".join(coded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        data = self.bytes.tobytes()
        for first, last in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield data[first:last].decode()

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            first, last, step = row.indices(len(self))
            if step != 1:
                return [self[i] for i in range(first, last, step)]
            return list(TextColumn(self.bytes, self.offsets[first : max(first, last) + 1]))
        row = _checked(row, len(self))
        return self.bytes[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """Few different strings many times: a number a row, and what the numbers mean."""

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
        return self.names[int(self.codes[_checked(row, len(self))])]


@dataclass(frozen=True, eq=False)
class ListColumn:
    """A list a row: words, tags, answers, numbers. Row i is values[offsets[i] : offsets[i + 1]]."""

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
        row = _checked(row, len(self))
        inner = self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]
        return inner.tolist() if isinstance(inner, np.ndarray) else inner


CompactColumn = TextColumn | CategoryColumn | ListColumn | np.ndarray


def compact(values: Sequence[Any]) -> CompactColumn:
    """The most compact column for these values."""
    if isinstance(values, TextColumn | CategoryColumn | ListColumn | np.ndarray):
        return values
    first = next(iter(values), "")
    if isinstance(first, str):
        few = len(set(values)) <= max(1000, len(values) // 10)
        return CategoryColumn.from_values(values) if few else TextColumn.from_values(values)
    if isinstance(first, list | tuple):
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(v) for v in values], out=offsets[1:])
        flat = [x for v in values for x in v]
        return ListColumn(_inner(flat), offsets)
    return np.asarray(values)


def _inner(flat: list[Any]) -> TextColumn | CategoryColumn | np.ndarray:
    if flat and not isinstance(flat[0], str):
        return np.asarray(flat)
    found = compact(flat)
    if isinstance(found, ListColumn):
        raise TypeError("a list of lists of lists is no column of a corpus")
    return found


def column_digest(column: Sequence[Any]) -> bytes:
    """What tells this column from any other; the same for the same values however they are held."""
    digest = hashlib.blake2b(digest_size=16)
    for at in range(0, len(column), 4096):
        digest.update("\0".join(map(str, column[at : at + 4096])).encode())
        digest.update(b"\1")
    return digest.digest()


def _checked(row: int, size: int) -> int:
    if not -size <= row < size:
        raise IndexError(row)
    return row + size if row < 0 else row
