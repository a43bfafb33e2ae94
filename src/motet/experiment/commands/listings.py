"""`motet list`: the names that a recipe can use, with a sentence on each, read from the tables themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from motet.core.plugins import Registry
from motet.experiment.commands.docstring_tables import read_table
from motet.experiment.recipe.config_parsing import look_up

PREVIEWED_ENTRIES = 4


def list_entries(table: str) -> dict[str, str]:
    """Return the names in a table, each with a sentence that describes it."""
    entries = look_up(TABLES, table, "list")()
    return {name: first_paragraph(entry) for name, entry in entries.items()}


def list_tables() -> dict[str, str]:
    """Return the names of all tables, each with the first entries in it."""
    return {name: _preview(list(table())) for name, table in TABLES.items()}


def _preview(names: list[str]) -> str:
    left_out = len(names) - PREVIEWED_ENTRIES
    return ", ".join(names[:PREVIEWED_ENTRIES]) + (f" and {left_out} others" if left_out > 0 else "")


def first_paragraph(entry: Any) -> str:
    """Return the first paragraph of a text, or of the docstring of a function."""
    text = entry if isinstance(entry, str) else inspect.getdoc(entry) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def _read_plugins(package: str, table: str) -> Mapping[str, Any]:
    """Return a table and its plugins, read from the source files because the package imports torch."""
    return Registry(package, read_table(package, table)).describe()


def _load(module: str, name: str) -> Mapping[str, Any]:
    """Return a table of a module: a registry, a mapping, or what a function returns."""
    table = getattr(import_module(module), name)
    if isinstance(table, Registry):
        return table.describe()
    entries: Mapping[str, Any] = table() if callable(table) else table
    return entries


def _list_files(package: str) -> Mapping[str, Any]:
    from motet.experiment.recipe.recipe_files import list_yaml_resources

    return list_yaml_resources(package)


def _datasets() -> Mapping[str, Any]:
    other = {
        "<file or folder>": "your own data, with data.path",
        "<hub name>": "any dataset on the Hugging Face hub; needs network access",
    }
    return {**_load("motet.datasets.load_corpus", "DATASET_REGISTRY"), **other}


def _models() -> Mapping[str, Any]:
    from motet.models.model_config import MODELS, PackagedModel

    models = {
        name: f"pretrained weights from the package {model.install}" if isinstance(model, PackagedModel) else model
        for name, model in MODELS.items()
    }
    other = {
        "<directory>": "any Hugging Face model directory",
        "<hub name>": "any model on the Hugging Face hub; needs network access",
    }
    return {**models, **other}


TABLES: dict[str, Callable[[], Mapping[str, Any]]] = {  # each is imported when it is listed
    "algorithms": partial(_read_plugins, "motet.algorithms", "ALGORITHMS"),
    "tasks": partial(_read_plugins, "motet.tasks", "TASKS"),
    "datasets": _datasets,
    "formats": partial(_load, "motet.datasets.file_formats", "describe_formats"),
    "models": _models,
    "partitions": partial(_load, "motet.partitions", "PARTITION_REGISTRY"),
    "codecs": partial(_read_plugins, "motet.codecs", "CODECS"),
    "transports": partial(_load, "motet.experiment.deploy.network_options", "TRANSPORTS"),
    "secure": partial(read_table, "motet.secure", "SECURE"),
    "privacy": partial(_load, "motet.privacy", "PRIVACY"),
    "robust": partial(_load, "motet.robust", "ROBUST"),
    "trackers": partial(_load, "motet.experiment.loop.tracking", "TRACKER_REGISTRY"),
    "recipes": partial(_list_files, "motet.recipes"),
    "keys": partial(_load, "motet.experiment.commands.recipe_keys", "list_keys"),
    "suites": partial(_list_files, "motet.suites"),
}
