"""What there is to choose from, read off the tables themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from motet.core.errors import ConfigError, did_you_mean


def list_entries(what: str) -> dict[str, str]:
    """Names and one sentence each."""
    if what not in TABLES:
        raise ConfigError(f"list: there is no '{what}'; there is {', '.join(TABLES)}.{did_you_mean(what, TABLES)}")
    return {name: _said(entry) for name, entry in TABLES[what]().items()}


def _said(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    return (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")


def _algorithms() -> Mapping[str, Any]:
    from motet.algorithms import ALGORITHMS

    return ALGORITHMS


def _tasks() -> Mapping[str, Any]:
    from motet.tasks import TASKS

    return TASKS


def _datasets() -> Mapping[str, Any]:
    from motet.datasets.corpus_readers import CORPUS_READERS
    from motet.datasets.load_corpus import BUILTIN_CORPORA

    ours = {"<file or folder>": "your own data, with data.path", "<hub name>": "any dataset of the hub, with network"}
    return {**BUILTIN_CORPORA, **CORPUS_READERS, **ours}


def _models() -> Mapping[str, Any]:
    from motet.models.load_model import MODELS, PackagedModel

    said = {
        n: f"weights that the package {m.install} carries" if isinstance(m, PackagedModel) else m
        for n, m in MODELS.items()
    }
    return {
        **said,
        "<directory>": "any Hugging Face model directory",
        "<hub name>": "any model of the hub, with network",
    }


def _partitions() -> Mapping[str, Any]:
    from motet.partitions import PARTITIONS

    return PARTITIONS


def _codecs() -> Mapping[str, Any]:
    from motet.codecs import CODECS

    return CODECS


def _transports() -> Mapping[str, Any]:
    from motet.experiment.deploy.client_launcher import TRANSPORTS

    return TRANSPORTS


def _secure() -> Mapping[str, Any]:
    from motet.secure import SECURE

    return SECURE


def _privacy() -> Mapping[str, Any]:
    from motet.privacy import PRIVACY

    return PRIVACY


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
    "models": _models,
    "partitions": _partitions,
    "codecs": _codecs,
    "transports": _transports,
    "secure": _secure,
    "privacy": _privacy,
    "recipes": _recipes,
    "suites": _suites,
}
