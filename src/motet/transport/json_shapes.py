"""Checks that the content of a file has a declared structure. It may be damaged, edited by hand, or written by others."""

from __future__ import annotations

import reprlib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

SCALARS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    types.NoneType: "null",
}


def find_mismatch(value: Any, shape: Any, where: str = "") -> str | None:
    """Return what is wrong with a value from a file, such as "bytes.payload_up is missing"; None if it has the shape.

    A shape is a type: a scalar, `list[…]`, `tuple[…, ...]`, `dict[str, …]`, a union, a literal, a TypedDict or a
    dataclass. An object may have more keys than its TypedDict, because a newer Motet may have written it.
    """
    return next(_find_mismatches(value, shape, where), None)


def _find_mismatches(value: Any, shape: Any, where: str) -> Iterator[str]:
    origin, arguments = get_origin(shape), get_args(shape)
    if shape is Any:
        return
    if origin in (Union, types.UnionType):
        problems = [find_mismatch(value, kind, where) for kind in arguments]
        if None not in problems:
            yield next(filter(None, problems))
    elif origin is Literal:
        if value not in arguments:
            yield _describe(value, where, f"one of {', '.join(map(str, arguments))}")
    elif origin in (list, tuple):
        if isinstance(value, list | tuple):
            yield from _check_items(((f"[{i}]", item, arguments[0]) for i, item in enumerate(value)), where)
        else:
            yield _describe(value, where, "a list")
    elif shape in SCALARS:
        kinds = (int, float) if shape is float else (shape,)
        if type(value) not in kinds:
            yield _describe(value, where, SCALARS[shape])
    elif not isinstance(value, dict):
        yield _describe(value, where, "an object with keys")
    elif origin in (dict, Mapping):
        yield from _check_items(((key, item, arguments[1]) for key, item in value.items()), where)
    else:
        yield from _check_keys(value, shape, where)


def _check_items(items: Iterable[tuple[str, Any, Any]], where: str) -> Iterator[str]:
    for name, item, shape in items:
        yield from _find_mismatches(item, shape, _join(where, name))


def _check_keys(value: Mapping[str, Any], shape: Any, where: str) -> Iterator[str]:
    """Check an object against a TypedDict, or against a dataclass, which is created from it and takes no other keys."""
    kinds, required = _list_keys(shape)
    if is_dataclass(shape):
        yield from (f"{_join(where, name)} is unknown" for name in value if name not in kinds)
    yield from (f"{_join(where, name)} is missing" for name in required if name not in value)
    yield from _check_items(((name, value[name], kind) for name, kind in kinds.items() if name in value), where)


@cache
def _list_keys(shape: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the types of all keys of an object, and the keys that it must have."""
    kinds = get_type_hints(shape)
    if is_typeddict(shape):
        hints = get_type_hints(shape, include_extras=True)
        return kinds, [name for name, hint in hints.items() if get_origin(hint) is not NotRequired]
    return kinds, [f.name for f in fields(shape) if f.default is MISSING and f.default_factory is MISSING]


def _join(where: str, name: str) -> str:
    return f"{where}{name}" if not where or name.startswith("[") else f"{where}.{name}"


def _describe(value: Any, where: str, expected: str) -> str:
    return f"{where or 'its content'} is {reprlib.repr(value)}; expected {expected}"
