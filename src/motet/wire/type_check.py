"""Does a value that came over a wire have the type its field declares?"""

from __future__ import annotations

import collections.abc
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor


@cache
def field_types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def matches_type(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin in (Union, types.UnionType):
        return any(matches_type(value, k) for k in inner)
    if origin is Literal:
        return value in inner and type(value) in {type(k) for k in inner}
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(matches_type(v, inner[0]) for v in value)
        return len(value) == len(inner) and all(matches_type(v, k) for v, k in zip(value, inner, strict=True))
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, dict) and all(
            matches_type(k, inner[0]) and matches_type(v, inner[1]) for k, v in value.items()
        )
    if origin in (list, collections.abc.Sequence):
        return isinstance(value, list | tuple) and all(matches_type(v, inner[0]) for v in value)
    if kind is None or kind is types.NoneType:
        return value is None
    if kind is float:
        return type(value) in (float, int)
    if kind in (int, str, bool, bytes):
        return type(value) is kind
    if kind is Tensor:
        return isinstance(value, Tensor)
    if getattr(kind, "_is_protocol", False):
        return True  # what it can do is seen when it is asked
    if not isinstance(kind, type):
        return True
    return (
        isinstance(value, kind) or getattr(type(value), "stands_for", None) is kind
    )  # as coded parameters do for plain ones
