"""Convert a column of labels, clients or domains to categories: one name per class, however its values are written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from motet.core.errors import DataError
from motet.datasets.columns import CategoryColumn, ListColumn, TextColumn
from motet.datasets.raw_table import RowPositions
from motet.datasets.read_log import ReadLog

STRIPPED = "labels with blanks around them, which were removed"
_ZERO_FRACTION = re.compile(r"(?<=\d)\.0+$")
_KINDS = {str: "text", bool: "true or false", **dict.fromkeys((int, float, Decimal), "a number")}
MAX_EXACT = 10**15  # Excel rounds larger numbers; above 9e15, a floating-point number may stand for several integers


def cast_categories(name: str, values: Any, positions: RowPositions, log: ReadLog, num_required: int) -> CategoryColumn:
    """Return the values as names. 1 and 1.0 are one name; a mixture of texts, numbers and booleans is an error.

    Only rows after the first `num_required` may be empty.
    """
    _warn_of_rounding(name, values, log)
    column = _cast(name, values, positions, log)
    _check_numbers(name, column, positions)
    is_empty = np.array([value == "" for value in column.names], bool)[column.codes[:num_required]]
    if is_empty.any():
        empty = np.flatnonzero(is_empty)
        count = f" {len(empty):,} of {num_required:,} rows have none." if len(empty) > 1 else ""
        raise DataError(f"{_error(positions, int(empty[0]), name, '', f'a {name}')}{count}")
    return column


def _cast(name: str, values: Any, positions: RowPositions, log: ReadLog) -> CategoryColumn:
    if isinstance(values, TextColumn):
        return _cast_texts(name, values, log)
    if isinstance(values, np.ndarray):
        return _cast_numbers(name, values, positions)
    if isinstance(values, ListColumn):
        sizes = np.diff(values.offsets)
        if isinstance(values.values, TextColumn) and (sizes == 1).all():
            return _cast_texts(name, values.values, log)
        row = int(np.flatnonzero(sizes != 1)[0])
        raise _error(positions, row, name, values[row], _EXPECTED_ONE)
    kinds: dict[str, int] = {}  # kind and its first row
    for row, value in enumerate(values):
        kind = _KINDS.get(type(value))
        if kind is None:
            raise _error(positions, row, name, value, _EXPECTED_ONE if isinstance(value, list) else "text or a number")
        kinds.setdefault(kind, row)
    if len(kinds) > 1:
        (one, first), (two, second) = list(kinds.items())[:2]
        raise DataError(
            f"{positions.describe(max(first, second))}: column '{name}' holds {values[max(first, second)]!r} ({two}), but "
            f"{positions.describe(first)} holds {values[first]!r} ({one}). Write all values in the same way."
        )
    return CategoryColumn.from_values([_to_name(value) for value in values])


_EXPECTED_ONE = "one value. To predict lists of labels, set task.type to a task that takes them (motet list tasks)"


def _error(positions: RowPositions, row: int, name: str, value: Any, expected: str) -> DataError:
    shown = repr(value[:60]) if isinstance(value, str) else repr(value)[:60]
    return DataError(
        f"{positions.describe(row)}: column '{name}' holds {shown}; expected {expected}. Fix or remove the row."
    )


def _to_name(value: Any) -> str:
    """Return a number without a decimal point if it has no fraction, and without zeros at the end of a fraction."""
    if isinstance(value, Decimal):
        return str(int(value)) if value == int(value) else str(value.normalize())
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _warn_of_rounding(name: str, values: Any, log: ReadLog) -> None:
    """Write a warning about identifiers that were stored as floating-point numbers and have too many digits for that."""
    if not isinstance(values, list) and not (isinstance(values, np.ndarray) and values.dtype.kind == "f"):
        return
    large = next((value for value in values if isinstance(value, float) and MAX_EXACT <= abs(value) < math.inf), None)
    if large is not None:
        log.warn(
            f"The column '{name}' holds floating-point numbers such as {large:.0f}, of which only 15 digits are exact. "
            "Several values may have become one. Write the column as text."
        )


def _cast_texts(name: str, values: TextColumn, log: ReadLog) -> CategoryColumn:
    array = pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(values.offsets), pa.py_buffer(values.bytes))
    encoded = array.dictionary_encode()
    codes = encoded.indices.to_numpy()
    names: list[str] = encoded.dictionary.to_pylist()
    stripped = [value.strip() for value in names]
    if stripped != names:
        is_stripped = np.array([a != b for a, b in zip(names, stripped, strict=True)])
        log.change(
            STRIPPED if name == "label" else STRIPPED.replace("labels", f"{name}s"), int(is_stripped[codes].sum())
        )
    return _merge_names(codes, stripped)


def _cast_numbers(name: str, values: np.ndarray, positions: RowPositions) -> CategoryColumn:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise _error(positions, row, name, values[row].item(), f"a {name}")
    distinct, codes = np.unique(values, return_inverse=True)
    return _merge_names(codes.astype(np.int32), [_to_name(value) for value in distinct.tolist()])


def _merge_names(codes: np.ndarray, names: Sequence[str]) -> CategoryColumn:
    """Return a column in which every name occurs once."""
    merged: dict[str, int] = {}
    new_codes = np.array([merged.setdefault(value, len(merged)) for value in names], np.int32)
    return CategoryColumn(new_codes[codes] if len(new_codes) else codes, tuple(merged))


def _check_numbers(name: str, column: CategoryColumn, positions: RowPositions) -> None:
    """Raise an error if one number is written in two ways, such as 1 and 1.0."""
    known = set(column.names)
    for value in column.names:
        whole = _ZERO_FRACTION.sub("", value)
        if whole != value and whole in known:
            first, second = (int(np.flatnonzero(column.codes == column.names.index(v))[0]) for v in (whole, value))
            raise DataError(
                f"{positions.describe(second)}: column '{name}' holds '{value}', but {positions.describe(first)} holds "
                f"'{whole}'. Write the same {name} in the same way."
            )
