"""Build a compact column from batches of values: texts, lists of texts, numbers, or anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motet.datasets.columns import ListColumn, TextColumn
from motet.datasets.disk_arrays import GrowingArray

BATCH_VALUES = 8192
_NUMBER_KINDS: dict[str, type] = {"i": int, "f": float, "b": bool}
_ARROW_KINDS: dict[pa.DataType, type] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}
RawColumn = Sequence[Any] | np.ndarray | TextColumn | ListColumn


class TextBuilder:
    """Collects texts as UTF-8."""

    def __init__(self) -> None:
        self.bytes = GrowingArray(np.uint8)
        self.offsets = _start_offsets()

    def append_texts(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        self.offsets.append(self.bytes.size + np.cumsum(lengths))
        self.bytes.append(np.frombuffer(b"".join(encoded), np.uint8))

    def append_array(self, array: pa.Array) -> None:
        """Append an Arrow array of large strings without nulls."""
        _, offset_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * 8)
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
        self.offsets.append(self.bytes.size + offsets[1:] - offsets[0])
        self.bytes.append(data[offsets[0] : offsets[-1]])

    def append_column(self, column: TextColumn) -> None:
        self.offsets.append(self.bytes.size + column.offsets[1:])
        self.bytes.append(column.bytes)

    def build(self) -> TextColumn:
        return TextColumn(self.bytes.build(), self.offsets.build())


class ColumnBuilder:
    """Collects the values of one column. Values of one kind are stored compactly; a mixture becomes a list."""

    def __init__(self) -> None:
        self.size = 0
        self._pending: list[Any] = []
        self._kind: type | None = None  # str, list (of str), int, float, bool; object: a mixture
        self._texts = TextBuilder()  # also the words of lists
        self._list_offsets = _start_offsets()
        self._numbers: GrowingArray | None = None
        self._objects: list[Any] = []

    def append(self, value: Any) -> None:
        self._pending.append(value)
        self.size += 1
        if len(self._pending) >= BATCH_VALUES:
            self._flush()

    def extend(self, values: Sequence[Any]) -> None:
        for value in values:
            self.append(value)

    def append_array(self, array: pa.Array) -> None:
        """Append an Arrow array without nulls."""
        self._flush()
        self.size += len(array)
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            if self._accepts(str):
                self._texts.append_array(pc.cast(array, pa.large_string()))
                return
        elif array.type in _ARROW_KINDS and self._accepts(_ARROW_KINDS[array.type]):
            self._append_numbers(array.to_numpy(zero_copy_only=False))
            return
        self._append_batch(array.to_pylist())

    def append_column(self, column: RawColumn) -> None:
        """Append a column that another builder has built."""
        self._flush()
        self.size += len(column)
        if isinstance(column, TextColumn) and self._accepts(str):
            self._texts.append_column(column)
        elif isinstance(column, np.ndarray) and self._accepts(_NUMBER_KINDS[column.dtype.kind]):
            self._append_numbers(column)
        else:
            for start in range(0, len(column), BATCH_VALUES):
                batch = column[start : start + BATCH_VALUES]
                self._append_batch(batch.tolist() if isinstance(batch, np.ndarray) else list(batch))

    def build(self) -> RawColumn:
        """Return all values as a TextColumn, a ListColumn, an array of numbers, or a list."""
        self._flush()
        return self._objects if self._kind in (object, None) else self._build_compact()

    def _flush(self) -> None:
        if self._pending:
            batch, self._pending = self._pending, []
            self._append_batch(batch)

    def _append_batch(self, batch: list[Any]) -> None:
        kind = _common_kind(batch)
        if not self._accepts(kind):
            self._objects += batch
        elif kind is str:
            self._texts.append_texts(batch)
        elif kind is list:
            lengths = np.fromiter(map(len, batch), np.int64, len(batch))
            self._list_offsets.append(self._texts.offsets.size - 1 + np.cumsum(lengths))
            self._texts.append_texts([word for words in batch for word in words])
        elif kind is object:
            self._objects += batch
        else:
            self._append_numbers(np.asarray(batch))

    def _accepts(self, kind: type) -> bool:
        """True if values of this kind can be stored compactly. Otherwise, the column becomes a list."""
        if self._kind is None:
            self._kind = kind
        elif self._kind is not kind and self._kind is not object:
            compact = self._build_compact()
            self._objects = compact.tolist() if isinstance(compact, np.ndarray) else list(compact)
            self._kind = object
        return self._kind is kind

    def _build_compact(self) -> TextColumn | ListColumn | np.ndarray:
        if self._kind is str:
            return self._texts.build()
        if self._kind is list:
            return ListColumn(self._texts.build(), self._list_offsets.build())
        assert self._numbers is not None
        return self._numbers.build()

    def _append_numbers(self, values: np.ndarray) -> None:
        if self._numbers is None:
            self._numbers = GrowingArray(values.dtype.type)
        self._numbers.append(values)


def _common_kind(batch: Sequence[Any]) -> type:
    kinds = set(map(type, batch))
    if len(kinds) != 1:
        return object
    (kind,) = kinds
    if kind is list:
        return list if all(type(word) is str for words in batch for word in words) else object
    if kind is int:
        return int if all(-(2**63) <= value < 2**63 for value in batch) else object
    return kind if kind in (str, float, bool) else object


def _start_offsets() -> GrowingArray:
    offsets = GrowingArray(np.int64)
    offsets.append(np.zeros(1, np.int64))
    return offsets
