"""Checks that a received value has the type that its message field declares."""

from __future__ import annotations

import collections.abc
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from motet.core.messages import SUBSTITUTES


@cache
def field_types(message_class: type) -> dict[str, Any]:
    return get_type_hints(message_class)


def matches_type(value: Any, expected: Any) -> bool:
    origin, args = get_origin(expected), get_args(expected)
    if expected is Any or expected is object:
        return True
    if origin in (Union, types.UnionType):
        return any(matches_type(value, option) for option in args)
    if origin is Literal:
        return value in args and type(value) in {type(option) for option in args}
    if origin is tuple:
        return isinstance(value, tuple) and _matches_tuple(value, args)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, dict) and all(
            matches_type(key, args[0]) and matches_type(item, args[1]) for key, item in value.items()
        )
    if origin in (list, collections.abc.Sequence):
        return isinstance(value, list | tuple) and all(matches_type(item, args[0]) for item in value)
    if expected is None or expected is types.NoneType:
        return value is None
    if expected is float:
        return type(value) in (float, int)
    if expected in (int, str, bool, bytes):
        return type(value) is expected
    if expected is Tensor:
        return isinstance(value, Tensor)
    if getattr(expected, "_is_protocol", False) or not isinstance(expected, type):
        return True  # checked when it is used
    return isinstance(value, expected) or SUBSTITUTES.get(type(value)) is expected


def _matches_tuple(value: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(matches_type(item, args[0]) for item in value)
    return len(value) == len(args) and all(map(matches_type, value, args))
