"""Find what a value holds at any depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def find_values(value: Any, kind: type[T]) -> Iterator[T]:
    """Yield the objects of a class in a value: itself, or in its items or fields."""
    if isinstance(value, kind):
        yield value
        return
    for child in _children(value):
        yield from find_values(child, kind)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name) for field in dataclasses.fields(value))
    return ()
