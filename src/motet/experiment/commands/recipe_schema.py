"""`motet schema`: the JSON Schema of recipes, so that editors complete and check them.

It is generated from the classes and functions that recipes are parsed into, and so is what `motet.run` takes.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from motet.experiment.commands.component_tables import SectionTable, auto, section_tables
from motet.experiment.commands.listings import first_paragraph
from motet.experiment.recipe.config_parsing import list_parameters
from motet.experiment.recipe.key_meanings import read_meanings
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.solver import Solver

Schema = dict[str, Any]
SCALARS: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    # Some YAML parsers read 5e-5 as text.
    float: {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"}]},
    str: {"type": ["string", "number"]},  # a name may be a number
}


def recipe_schema() -> Schema:
    """Return the JSON Schema of a recipe."""
    tables = section_tables()
    recipe = _object_schema(RunConfig, tables)
    properties = recipe["properties"]
    properties["recipe"] = {"type": "string", "description": "name of the recipe; in the config.yaml of a run"}
    properties["solver"] = {**_object_schema(Solver, {}), "description": properties["solver"]["description"]}
    properties["codec"] = _codec_schema(tables["codec"])
    properties["groups"] = {
        "description": properties["groups"]["description"],
        "type": ["array", "null"],
        "items": _group_schema(tables),
    }
    change = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    properties["baselines"] = {**properties["baselines"], "additionalProperties": change}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Motet recipe",
        "description": RunConfig.__doc__,
        **recipe,
    }


def _object_schema(kind: type, tables: Mapping[str, SectionTable]) -> Schema:
    """Return the schema of a section that a dataclass declares."""
    meanings, hints = read_meanings(kind), get_type_hints(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        schema = _section_schema(tables[field.name]) if field.name in tables else _type_schema(hints[field.name])
        meaning = {"description": meanings[field.name]} if meanings.get(field.name) else {}
        properties[field.name] = {**schema, **meaning, **_default(field.default)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _type_schema(kind: Any) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return dict(SCALARS[kind])
    if kind is types.NoneType:
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(each) for each in arguments]}
    if origin is tuple:  # one value is short for a list of one
        item = _type_schema(arguments[0])
        return {"anyOf": [{"type": "array", "items": item}, item]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": ["object", "null"]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object_schema(kind, {})
    return {}


def _section_schema(table: SectionTable) -> Schema:
    """Return the schema of a section with a `type`: a name, or an object with the options of that type."""
    names = {"oneOf": [{"const": name, "description": first_paragraph(entry)} for name, entry in table.entries.items()]}
    conditions = [
        {"if": _names_type(name, is_default=name == table.default), "then": _options_schema(entry, table)}
        for name, entry in table.entries.items()
    ]
    section = {"type": "object", "properties": {"type": names}, "allOf": conditions}
    return {"anyOf": [names, section, {"type": "null"}]}


def _names_type(name: str, is_default: bool) -> Schema:
    """Return the condition that a section has this type. A section without one has the default."""
    condition: Schema = {"properties": {"type": {"const": name}}}
    return condition if is_default else {**condition, "required": ["type"]}


def _options_schema(entry: Any, table: SectionTable) -> Schema:
    if not callable(entry):  # text in place of a function: its options are not known
        return {}
    options = _parameter_schemas(entry, table.fixed)
    if entry is auto:  # the corpus decides which task takes the options
        for each in filter(callable, table.entries.values()):
            options |= _parameter_schemas(each, table.fixed)
    return {"properties": {"type": {}, **options, **table.common}, "additionalProperties": False}


def _parameter_schemas(entry: Callable[..., Any], fixed: Collection[str]) -> dict[str, Schema]:
    meanings = read_meanings(entry) if dataclasses.is_dataclass(entry) and isinstance(entry, type) else {}
    hints = get_type_hints(entry.__init__ if inspect.isclass(entry) else entry)
    return {
        name: {
            **_type_schema(hints.get(name)),
            **({"description": meanings[name]} if meanings.get(name) else {}),
            **_default(parameter.default),
        }
        for name, parameter in list_parameters(entry).items()
        if name not in fixed
    }


def _codec_schema(table: SectionTable) -> Schema:
    """Return the schema of one chain for both directions, or of a chain for each."""
    single = {
        "type": "object",
        "properties": {name: {"type": ["object", "null"]} for name in table.entries},
        "maxProperties": 1,
        "additionalProperties": False,
    }
    codec = {"anyOf": [*_section_schema(table)["anyOf"], single]}
    chain = {"anyOf": [codec, {"type": "array", "items": codec}]}
    directions = {"type": "object", "properties": {"up": chain, "down": chain}, "additionalProperties": False}
    return {"anyOf": [chain, directions], "description": "how messages are compressed, in each direction or in both"}


def _group_schema(tables: Mapping[str, SectionTable]) -> Schema:
    schema = _object_schema(GroupConfig, tables)
    properties = schema["properties"]
    for name in ("model", "data"):  # a name is short for {name: …}
        properties[name] = {"anyOf": [properties[name], {"type": ["string", "null"]}]}
    properties["corpus"] = {"type": "string", "description": "short for data.name"}
    return schema


def _default(value: Any) -> Schema:
    """Return a default that JSON can hold."""
    if isinstance(value, bool | int | float | str | None):
        return {"default": value}
    return {"default": list(value)} if isinstance(value, tuple) and _all_plain(value) else {}


def _all_plain(values: Iterable[Any]) -> bool:
    return all(isinstance(value, bool | int | float | str) for value in values)
