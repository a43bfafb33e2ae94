"""`motet list`: the names that a recipe can use, with a sentence on each, read from the tables themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
    """Return an entry that is text, or the first paragraph of its docstring."""
    if isinstance(entry, str):
        return entry
    return (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")


# Each table is imported only when it is listed.


def _algorithms() -> Mapping[str, Any]:
    from motet.algorithms import ALGORITHM_REGISTRY

    return ALGORITHM_REGISTRY.describe()


def _tasks() -> Mapping[str, Any]:
    from motet.tasks import TASK_REGISTRY

    return TASK_REGISTRY.describe()


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
    from motet.models.load_model import MODELS, PackagedModel

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
    from motet.codecs import CODEC_REGISTRY

    return CODEC_REGISTRY.describe()


def _trackers() -> Mapping[str, Any]:
    from motet.experiment.loop.tracking import TRACKER_REGISTRY

    return TRACKER_REGISTRY.describe()


def _transports() -> Mapping[str, Any]:
    from motet.experiment.deploy.client_launcher import TRANSPORTS

    return TRANSPORTS


def _secure() -> Mapping[str, Any]:
    from motet.secure import SECURE

    return SECURE


def _privacy() -> Mapping[str, Any]:
    from motet.privacy import PRIVACY

    return PRIVACY


def _robust() -> Mapping[str, Any]:
    from motet.robust import ROBUST

    return ROBUST


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
    "suites": _suites,
}
