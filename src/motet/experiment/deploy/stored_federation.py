"""A federation without its texts, in a file of the run's folder: the task, vocabulary and clients of each group.

`motet export` builds models from it, so it does not need the data of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from motet.core.errors import ConfigError, RunError, WireError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.task_columns import required_columns
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.deploy.acceptance import deserialize_task, serialize_group
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.data.features import Features
from motet.learning.modules.model import Model
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig
from motet.partitions.partition import ClientRows, NamedClients, NumberedClients, Partition
from motet.tasks import Task
from motet.transport.json_shapes import find_mismatch
from motet.transport.private_files import write_atomically
from motet.wire import serialize
from motet.wire.value_files import load_value

FILE_NAME = "groups"
ADVICE = "Restore it, or delete it: then the data of the run is read instead."


class StoredGroup(TypedDict):
    """An entry of the file. The last entry is the server."""

    task: dict[str, Any]
    words: str
    name: str
    count: int
    names: list[str] | None
    range: tuple[int, ...]
    prefix: str


def write_groups(folder: Path, config: RunConfig, federation: Federation) -> None:
    """Write what the groups of a federation and its server are, without their texts."""
    groups = zip(_list_configs(config), (*federation.groups, federation.server), strict=True)
    with suppress(TypeError, WireError):  # a task of another package that cannot be written; export then reads the data
        stored = [{**serialize_group(c, group), **_describe_clients(group)} for c, group in groups]
        write_atomically(folder / FILE_NAME, serialize(stored))


def read_federation(folder: Path, config: RunConfig) -> Federation | None:
    """Build the federation of a run without texts. None if an older Motet wrote the folder."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    models: dict[str, Model] = {}

    def load(model: ModelConfig, task: Task, words: str) -> Model:
        """Load a model once, also if several groups have it: they start with the same weights."""
        key = repr((model, task.head, task.labels, words))
        if key not in models:
            models[key] = load_model(model, task.head, task.labels, lambda: words, Seed(config.seed))
        return models[key]

    configs = _list_configs(config)
    stored_groups = load_value(path)
    if problem := _find_problem(stored_groups, len(configs)):
        raise RunError(f"'{path}' is damaged: {problem}. {ADVICE}")
    groups = []
    for stored, group_config in zip(stored_groups, configs, strict=True):
        try:
            task = deserialize_task(stored["task"])
        except ConfigError as error:
            raise RunError(f"'{path}' is damaged: {str(error).rstrip('.')}. {ADVICE}") from None
        groups.append(_build_group(stored, task, load(group_config.model, task, stored["words"])))
    return Federation(groups=tuple(groups[:-1]), server=groups[-1], seed=Seed(config.seed))


def _find_problem(groups: Any, expected: int) -> str | None:
    """Return what is wrong with the content of the file; None if it is consistent."""
    if mismatch := find_mismatch(groups, list[StoredGroup]):
        return mismatch
    if len(groups) != expected:
        return f"it has {len(groups)} entries, and the recipe has {expected - 1} groups and a server"
    for i, group in enumerate(groups):
        if group["names"] is not None and len(group["names"]) != group["count"]:
            return f"[{i}] has {len(group['names'])} names of {group['count']} clients"
        if len(group["range"]) != 2 or not 0 <= group["range"][0] <= group["range"][1] <= group["count"]:
            return f"[{i}].range is {group['range']}; expected the first and last of {group['count']} clients"
    return None


def _list_configs(config: RunConfig) -> list[GroupConfig]:
    """Return the configuration of each group, and then of the server."""
    return [*config.client_groups, GroupConfig(model=config.model)]


def _describe_clients(group: ClientGroup) -> dict[str, Any]:
    clients = group.clients
    names = [*clients.names] if isinstance(clients.names, NamedClients) else None
    return {
        "name": group.name,
        "count": len(clients.names),
        "names": names,
        "range": (clients.start, clients.stop),
        "prefix": clients.prefix,
    }


def _build_group(stored: Mapping[str, Any], task: Task, model: Model) -> ClientGroup:
    named = None if stored["names"] is None else NamedClients(np.asarray(stored["names"]))
    nothing, no_rows = np.zeros(0, np.int64), ClientRows(np.zeros(0, np.int64), np.zeros(stored["count"] + 1, np.int64))
    start, stop = stored["range"]
    return ClientGroup(
        name=stored["name"],
        task=task,
        model=model,
        corpus=Corpus(stored["name"], task.name, {name: [""] for name in ("text", *required_columns(task.name))}, 1),
        features=Features("", {}),
        partition=Partition(no_rows, no_rows, {}, named),
        train=no_rows,
        test=no_rows,
        global_test_rows=nothing,
        clients=ClientRange(named or NumberedClients(stored["count"]), start, stop, stored["prefix"]),
        public_rows=nothing,
        dev_rows=nothing,
    )
