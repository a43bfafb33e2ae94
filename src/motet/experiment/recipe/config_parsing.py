"""Convert options from YAML to the types a function takes, with precise errors for options that do not fit."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from numbers import Integral
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean, name_choices
from motet.experiment.recipe.key_synonyms import suggest_option

T = TypeVar("T")
# Sections whose options `motet list keys` shows.
RECIPE_SECTIONS = ("data", "model", "solver", "cohort", "evaluation", "checkpoint", "wait_policy", "network")
MAX_OWNERS = 6  # types that an error names


@cache
def list_parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the named parameters of a function or class."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}


@cache
def _read_hints(factory: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types that a function or class declares for its parameters."""
    return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)


def instantiate(
    factory: Callable[..., T], options: Mapping[str, Any], path: str, fixed: Mapping[str, Any] | None = None
) -> T:
    """Call `factory` with options from a recipe, checked against its signature.

    `path` is where the options are in the recipe, for error messages. `fixed` are arguments that a recipe may not set;
    those that `factory` does not take are dropped.
    """
    fixed = fixed or {}
    accepted = {name: value for name, value in fixed.items() if name in list_parameters(factory)}
    arguments = {**convert_options(factory, options, path, fixed), **accepted}
    try:
        return factory(**arguments)
    except TypeError as error:
        if "abstract" not in str(error):
            raise
        raise ConfigError(f"{path}: {error}; add them to the class.") from error


def convert_options(
    factory: Callable[..., Any], options: Mapping[str, Any], path: str, fixed: Collection[str] = ()
) -> dict[str, Any]:
    """Convert options to the types that `factory` declares, without calling it."""
    parameters = {name: p for name, p in list_parameters(factory).items() if name not in fixed}
    if not isinstance(options, Mapping):
        example = next(iter(parameters), "name")
        raise ConfigError(f"{path} is {options!r}; expected options, such as {path}.{example}={options}.")
    for name in options:
        if name not in parameters:
            see = "motet list keys" if path in ("", *RECIPE_SECTIONS) else ""
            hint = suggest_option(str(name), [*parameters, *(["type"] if name != "type" else [])])
            choices = name_choices(str(name), parameters or ["type"], verb="it takes", see=see, hint=hint)
            raise ConfigError(f"{path or 'recipe'}: unknown option '{name}'{choices}")
    hints = _read_hints(factory)
    converted = {
        name: convert_value(value, hints.get(name, Any), f"{path}.{name}".lstrip("."))
        for name, value in options.items()
    }
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in converted]
    if missing:
        raise ConfigError(f"{path}: option '{missing[0]}' is missing; it has no default, so give it a value.")
    return converted


def look_up(table: Mapping[str, T], name: Any, path: str) -> T:
    """Return `table[name]`. `path` is the recipe key that holds the name, for the error message."""
    if name not in table:
        raise ConfigError(f"{path}: there is no '{name}'{name_choices(str(name), table)}")
    return table[name]


def look_up_type(
    table: Mapping[str, Callable[..., Any]], kind: str, options: Iterable[str], section: str
) -> Callable[..., Any]:
    """Return the factory of a section with a type, such as `privacy`."""
    factory = look_up(table, kind, f"{section}.type")
    check_owner(table, kind, options, section)
    return factory


def check_owner(table: Mapping[str, Callable[..., Any]], kind: str, options: Iterable[str], section: str) -> None:
    """Raise an error for an option of a section that only other types take."""
    for option in options:
        owners = [name for name, factory in table.items() if option in list_parameters(factory)]
        if owners and kind in table and kind not in owners:
            shown = ", ".join(owners[:MAX_OWNERS]) + (", …" if len(owners) > MAX_OWNERS else "")
            raise ConfigError(
                f"{section} {kind}: unknown option '{option}'; these types have it: {shown}. Set {section}.type."
            )


def convert_value(value: Any, kind: Any, path: str) -> Any:
    """Convert a value to its declared type. YAML reads 5e-5 as text and 1 as an integer; both may mean a float."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if getattr(kind, "_is_protocol", False):
        if kind not in type(value).__mro__:
            raise ConfigError(
                f"{path} is {value!r}; expected a {kind.__name__} of {kind.__module__.rpartition('.')[0]}."
            )
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, path)
    if origin is Literal:
        if value in arguments:
            return value
        hint = did_you_mean(str(value), arguments)
        raise ConfigError(f"{path} is '{value}'; it must be one of {', '.join(map(str, arguments))}.{hint}")
    if origin is tuple:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(convert_value(v, arguments[0], path) for v in values)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"{path} is {value!r}; expected options, such as {{name: value}}, or null for none.")
        return {name: convert_value(v, arguments[1], f"{path}.{name}") for name, v in (value or {}).items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else instantiate(kind, value, path)
    return _convert_scalar(value, kind, path)


def _convert_union(value: Any, kinds: Iterable[Any], path: str) -> Any:
    """Convert to the first type of the union that fits."""
    if value is None and types.NoneType in kinds:
        return None
    candidates = [kind for kind in kinds if kind is not types.NoneType]
    for kind in candidates[:-1]:
        try:
            return convert_value(value, kind, path)
        except ConfigError:
            continue
    return convert_value(value, candidates[-1], path)


def _convert_scalar(value: Any, kind: Any, path: str) -> Any:
    descriptions = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    try:
        if kind is bool and isinstance(value, bool):
            return value
        if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
            return int(value)  # exactly: a float has only 53 bits of a large seed
        if kind is int and not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
        if kind is float and not isinstance(value, bool):
            return float(value)
        if kind is str and isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{path} is {value!r}; expected {descriptions.get(kind, kind)}.")
