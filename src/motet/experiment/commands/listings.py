"""`motet list`: the names that a recipe can use, with a sentence on each, read from the tables themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from motet.core.plugins import Registry
from motet.experiment.commands.docstring_tables import read_table
from motet.experiment.recipe.config_parsing import look_up


def list_entries(table: str) -> dict[str, str]:
    """Return the names in a table, each with a sentence that describes it."""
    entries = look_up(TABLES, table, "list")()
    return {name: _describe(entry) for name, entry in entries.items()}


def list_tables() -> dict[str, str]:
    """Return the names of all tables, each with the first entries in it."""
    return {name: _preview(list(table())) for name, table in TABLES.items()}


def _preview(names: list[str], count: int = 4) -> str:
    left_out = len(names) - count
    return ", ".join(names[:count]) + (f" and {left_out} others" if left_out > 0 else "")


def _describe(entry: Any) -> str:
    """Return the first paragraph of a text, or of the docstring of a function."""
    text = entry if isinstance(entry, str) else inspect.getdoc(entry) or ""
    return text.split("\n\n")[0].replace("\n", " ")


# Each table is imported only when it is listed. Tables that import torch are read from their source files.


def _algorithms() -> Mapping[str, Any]:
    return Registry("motet.algorithms", read_table("motet.algorithms", "ALGORITHMS")).describe()


def _tasks() -> Mapping[str, Any]:
    return Registry("motet.tasks", read_table("motet.tasks", "TASKS")).describe()


def _datasets() -> Mapping[str, Any]:
    from motet.datasets.load_corpus import DATASET_REGISTRY

    other = {
        "<file or folder>": "your own data, with data.path",
        "<hub name>": "any dataset on the Hugging Face hub; needs network access",
    }
    return {**DATASET_REGISTRY.describe(), **other}


def _formats() -> Mapping[str, Any]:
    from motet.datasets.file_formats import describe_formats

    return describe_formats()


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


def _partitions() -> Mapping[str, Any]:
    from motet.partitions import PARTITION_REGISTRY

    return PARTITION_REGISTRY.describe()


def _codecs() -> Mapping[str, Any]:
    return Registry("motet.codecs", read_table("motet.codecs", "CODECS")).describe()


def _trackers() -> Mapping[str, Any]:
    from motet.experiment.loop.tracking import TRACKER_REGISTRY

    return TRACKER_REGISTRY.describe()


def _transports() -> Mapping[str, Any]:
    from motet.experiment.deploy.network_options import TRANSPORTS

    return TRANSPORTS


def _secure() -> Mapping[str, Any]:
    return read_table("motet.secure", "SECURE")


def _privacy() -> Mapping[str, Any]:
    from motet.privacy import PRIVACY

    return PRIVACY


def _robust() -> Mapping[str, Any]:
    from motet.robust import ROBUST

    return ROBUST


def _keys() -> Mapping[str, Any]:
    from motet.experiment.commands.recipe_keys import list_keys

    return list_keys()


def _recipes() -> Mapping[str, Any]:
    from motet.experiment.recipe.recipe_files import list_recipes

    return list_recipes()


def _suites() -> Mapping[str, Any]:
    from motet.experiment.recipe.recipe_files import list_yaml_resources

    return list_yaml_resources("motet.suites")


TABLES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "algorithms": _algorithms,
    "tasks": _tasks,
    "datasets": _datasets,
    "formats": _formats,
    "models": _models,
    "partitions": _partitions,
    "codecs": _codecs,
    "transports": _transports,
    "secure": _secure,
    "privacy": _privacy,
    "robust": _robust,
    "trackers": _trackers,
    "recipes": _recipes,
    "keys": _keys,
    "suites": _suites,
}
