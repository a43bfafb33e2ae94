"""The reference of the options of algorithms, tasks, partitions and other components.

Types, defaults and ranges come from the code. Meanings and examples are in `examples.yaml`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

import yaml
from recipe_reference import EXAMPLES, field_comments, key_table, type_name, value_range, yaml_value

SECTIONS = {
    "algorithms": "algorithm",
    "server optimizers": "server",
    "tasks": "task",
    "partitions": "partition",
    "codecs": "codec.up",
    "transports": "transport",
    "secure": "secure",
    "privacy": "privacy",
    "robust": "robust",
    "attacks": "attack",
}
WITH_CORPUS = ("tasks", "partitions")  # their options are checked together with a corpus, so ranges are not tried here
NOT_IN_RECIPES = (
    "corpus",
    "seed",
    "solver",
    "server",
    "codecs",
)  # set elsewhere: solver, server and codec have sections
PLAIN = (bool, int, float, str, tuple, type(None))
Entry = Callable[..., Any]


def parameters(entry: Entry | None) -> Iterator[inspect.Parameter]:
    """Yield the options that a recipe can give to an entry of a table."""
    if entry is not None:
        for parameter in inspect.signature(entry).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in NOT_IN_RECIPES:
                yield parameter


def option_table(title: str, entries: Mapping[str, Entry]) -> list[str]:
    """Return a table of the options of all entries; an option of several entries has one row."""
    owners: dict[str, list[str]] = {}
    for name, entry in entries.items():
        for parameter in parameters(entry):
            owners.setdefault(parameter.name, []).append(name)
    rows = [_option_row(title, option, {name: entries[name] for name in names}) for option, names in owners.items()]
    return key_table(("option", "values", "default", "meaning"), rows)


def _option_row(title: str, option: str, entries: Mapping[str, Entry]) -> tuple[str, str, str, str]:
    key = f"{SECTIONS[title]}.{option}"
    values = _merge([_values(title, entry, option) for entry in entries.values()])
    defaults = {_default_text(entry, option) for entry in entries.values()}
    default = next(iter(defaults)) if len(defaults) == 1 else "by component"
    meaning = option_meaning(title, option, entries)
    return f"`{key}`", values, default, meaning + _example_text(title, option, next(iter(entries)))


def _merge(values: Sequence[str]) -> str:
    """Return the values of several entries together; ranges only if they agree."""
    if len(set(values)) > 1:
        values = [value.partition(" ≥")[0].partition(" >")[0] for value in values]
    return " or ".join(dict.fromkeys(part for value in values for part in value.split(" or ")))


def option_meaning(title: str, option: str, entries: Mapping[str, Entry]) -> str:
    """Return what an option means: from the table of meanings, or the comment beside it in the code."""
    meanings = option_texts()[title].get(option, [None, None])[0]
    if meanings is None:
        comments = [field_comments(entry).get(option, "") for entry in entries.values() if inspect.isclass(entry)]
        return next((comment.replace("None:", "null:") for comment in comments if comment), "")
    if isinstance(meanings, str):
        return meanings
    return "; ".join(text if name == "_" else f"of `{name}`: {text}" for name, text in meanings.items())


@cache
def option_texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the meanings and examples of the options of each table."""
    content = yaml.safe_load(EXAMPLES.read_text("utf-8"))
    return dict(content["options"])


def _example_text(title: str, option: str, name: str) -> str:
    value = option_texts()[title].get(option, [None, None])[1]
    if value is None:
        return ""
    if title == "codecs":
        return f"<br>Example: `codec.up=[{{type: {name}, {option}: {yaml_value(value)}}}]`"
    return f"<br>Example: `{SECTIONS[title]}.{option}={yaml_value(value)}`"


def _default_text(entry: Entry, option: str) -> str:
    default = inspect.signature(entry).parameters[option].default
    if default is inspect.Parameter.empty:
        return "required"
    return f"`{yaml_value(default)}`" if isinstance(default, PLAIN) else ""


def option_type(entry: Entry, option: str) -> Any:
    """Return the type of an option."""
    return get_type_hints(entry.__init__ if inspect.isclass(entry) else entry)[option]  # type: ignore[misc]


def _values(title: str, entry: Entry, option: str) -> str:
    name = type_name(option_type(entry, option))
    has_range = title not in WITH_CORPUS and all(p.default is not p.empty for p in parameters(entry))
    return name + (value_range(entry, option) if has_range else "")
