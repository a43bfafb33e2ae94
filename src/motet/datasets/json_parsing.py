"""Parse JSON that others wrote. Invalid JSON and text that cannot be encoded are errors with their position."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from motet.core.errors import DataError


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Python would keep only the last of several values with the same name."""
    row = dict(pairs)
    if len(row) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object has the name '{name}' twice")
    return row


DECODER = json.JSONDecoder(object_pairs_hook=_to_object)
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def parse_json(place: str, text: str, advice: str) -> Any:
    """Return the value of a JSON text; `place` says where it is, and `advice` ends the sentence of an error."""
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: invalid JSON ({error}){advice}") from None
    check_characters(place, value, text)
    return value


def check_characters(place: str, value: Any, text: str) -> None:
    """Raise an error if an escape sequence is half of a surrogate pair, which cannot be encoded."""
    if not _SURROGATE.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        character = f"\\u{ord(error.object[error.start]):04x}"
        raise DataError(
            f"{place}: {character} is half of a surrogate pair and not a character. Fix or remove the text."
        ) from None


def find_field(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, or of a field in an object: `meta.author` is row["meta"]["author"]. None: no value."""
    if column in row:
        return row[column]
    outer, _, inner = column.partition(".")
    value = row.get(outer)
    return find_field(value, inner) if inner and isinstance(value, dict) else None


def list_fields(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the columns of a row and their values. The fields of an object have names such as `meta.author`."""
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from list_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
