"""Turn what a person wrote into what a function takes, and say precisely what does not fit."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from motet.core.errors import ConfigError, did_you_mean

T = TypeVar("T")


def options_of(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(maker).parameters.values()
    return {p.name: p for p in found if p.kind is not inspect.Parameter.VAR_KEYWORD}


def fill(maker: Callable[..., T], given: Mapping[str, Any], where: str, fixed: Mapping[str, Any] | None = None) -> T:
    """Call `maker` with the given options, checked against its signature; `fixed` are not the person's to give."""
    fixed = fixed or {}
    return maker(**readied(maker, given, where, fixed), **{k: v for k, v in fixed.items() if k in options_of(maker)})


def readied(
    maker: Callable[..., Any], given: Mapping[str, Any], where: str, fixed: Collection[str] = ()
) -> dict[str, Any]:
    """The given options as `maker` takes them; what is wrong with them is said without calling it."""
    taken = {name: p for name, p in options_of(maker).items() if name not in fixed}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{where} is {given!r}; expected options, such as {where}.{next(iter(taken), 'name')}={given}."
        )
    for name in given:
        if name not in taken:
            takes = ", ".join(taken) or "no options"
            raise ConfigError(
                f"{where or 'recipe'}: unknown option '{name}'; it takes {takes}.{did_you_mean(name, [*taken, 'type'])}"
            )
    hints = get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    ready = {name: coerced(value, hints.get(name, Any), f"{where}.{name}".lstrip(".")) for name, value in given.items()}
    missing = [n for n, p in taken.items() if p.default is inspect.Parameter.empty and n not in ready]
    if missing:
        raise ConfigError(f"{where}: option '{missing[0]}' is missing; give {where}.{missing[0]}=…")
    return ready


def choose(table: Mapping[str, T], name: Any, what: str) -> T:
    if name not in table:
        raise ConfigError(f"{what}: there is no '{name}'; there is {', '.join(table)}.{did_you_mean(str(name), table)}")
    return table[name]


def coerced(value: Any, kind: Any, where: str) -> Any:
    """The value as the declared type. YAML reads 5e-5 as text and 1 as a whole number; both may be meant as a number."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _union(value, inner, where)
    if origin is Literal:
        if value in inner:
            return value
        raise ConfigError(
            f"{where} is '{value}'; it must be one of {', '.join(map(str, inner))}.{did_you_mean(str(value), inner)}"
        )
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(coerced(v, inner[0], where) for v in items)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"{where} is {value!r}; expected options, such as {{name: value}}, or null for none.")
        return dict(value or {})
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else fill(kind, value, where)
    if getattr(kind, "_is_protocol", False):
        return value
    return _scalar(value, kind, where)


def _union(value: Any, kinds: Iterable[Any], where: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    wanted = [k for k in kinds if k is not types.NoneType]
    for kind in wanted[:-1]:
        try:
            return coerced(value, kind, where)
        except ConfigError:
            continue
    return coerced(value, wanted[-1], where)


def _scalar(value: Any, kind: Any, where: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    try:
        if kind is bool and isinstance(value, bool):
            return value
        if kind is int and not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
        if kind is float and not isinstance(value, bool):
            return float(value)
        if kind is str and isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{where} is {value!r}; expected {words.get(kind, kind)}.")
