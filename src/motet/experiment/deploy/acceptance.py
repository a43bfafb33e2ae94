"""What the server sends to a client that joins: the run's configuration, and the task and vocabulary of each group."""

from __future__ import annotations

import dataclasses
import hashlib
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

import torch

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.load_corpus import DataConfig
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.recipe.run_config import ComponentConfig, GroupConfig, RunConfig
from motet.learning.modules.model import Model
from motet.models.load_model import MULTITASK_PREFIX, load_model
from motet.models.model_size import check_memory
from motet.tasks import TASK_REGISTRY, Task
from motet.transport.admission import JoinAccepted
from motet.wire.type_check import field_types, matches_type

VOCABULARY_MODELS = ("tiny", "bilstm")  # models that build their vocabulary from the server's corpus
ON_SERVER = "on the server"  # instead of a path
SERVER_SECTIONS = ("transport", "checkpoint", "baselines")


def build_acceptance(config: RunConfig, federation: Federation, run: str, session: str) -> JoinAccepted:
    """Build the message that a client gets when it joins."""
    pairs = zip(config.client_groups, federation.groups, strict=True)
    return JoinAccepted(
        run=run,
        session=session,
        digest=config.digest,
        config={name: value for name, value in config.to_dict().items() if name not in SERVER_SECTIONS},
        groups={group.name: serialize_group(group_config, group) for group_config, group in pairs},
    )


def remove_server_files(config: RunConfig) -> RunConfig:
    """Return the configuration without what names files of the server: its texts, how they are divided, and keys.

    Clients verify each other with their own files, whatever `secure.identities` names on the server.
    """
    undivided = ComponentConfig("uniform")
    options = {name: value for name, value in config.secure.options.items() if name != "identities"}
    return replace(
        config,
        data=_remove_files(config.data),
        partition=undivided,
        secure=ComponentConfig(config.secure.type, options),
        groups=tuple(replace(g, data=_remove_files(g.data), partition=undivided) for g in config.groups),
    )


def _remove_files(data: DataConfig) -> DataConfig:
    path = ON_SERVER if data.path is not None else None
    return replace(data, path=path, test=None, files=None)


def serialize_group(group_config: GroupConfig, group: ClientGroup) -> dict[str, Any]:
    """Return the task of a group, and the vocabulary of its model if that was built from texts."""
    task: Any = group.task
    has_own_vocabulary = group_config.model.name.removeprefix(MULTITASK_PREFIX) in VOCABULARY_MODELS
    words = group.model.tokenizer.backend_tokenizer.to_str() if has_own_vocabulary else ""
    return {"task": {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}, "words": words}


def deserialize_task(fields: Mapping[str, Any]) -> Task:
    """Build a task from its fields, which another process wrote."""
    kind = get_type_hints(TASK_REGISTRY.get(str(fields.get("name")), "task.name"))["return"]
    types = field_types(kind)
    for name, value in fields.items():
        if name in types and not matches_type(value, types[name]):
            raise ConfigError(f"task.{name} is {reprlib.repr(value)}; expected {types[name]}")
    try:
        task: Task = kind(**fields)
    except TypeError as error:
        raise ConfigError(f"the task cannot be built ({error})") from None
    return task


def load_group_model(config: RunConfig, acceptance: JoinAccepted, group: str) -> tuple[Task, Model]:
    """Build a group's task and its initial model, as the server has them."""
    _, group_config = find_group(config, acceptance, group)
    fields, words = acceptance.groups[group].get("task"), str(acceptance.groups[group].get("words", ""))
    if not isinstance(fields, dict):
        raise ConfigError("the server sent no task; use the same version of Motet on both sides.")
    try:
        task = deserialize_task(fields)
    except ConfigError as error:
        raise ConfigError(
            f"the server's task cannot be read: {str(error).rstrip('.')}; use the same version of Motet on both sides."
        ) from None
    check_memory(group_config.model, task.head, task.labels, lambda: words)
    return task, load_model(group_config.model, task.head, task.labels, lambda: words, Seed(config.seed))


def find_group(config: RunConfig, acceptance: JoinAccepted, name: str) -> tuple[str, GroupConfig]:
    """Return the name and configuration of a client's group. If there is only one, the name may be empty."""
    if len(acceptance.groups) != len(config.client_groups):
        raise ConfigError(
            f"the server sent {len(acceptance.groups)} groups, but its recipe has {len(config.client_groups)}; "
            "use the same version of Motet on both sides."
        )
    groups = dict(zip(acceptance.groups, config.client_groups, strict=True))
    if len(groups) == 1 and not name:
        return next(iter(groups.items()))
    if name not in groups:
        raise ConfigError(f"--group is '{name}'; expected one of the server's groups: {', '.join(groups)}.")
    return name, groups[name]


def model_fingerprint(model: Model) -> str:
    """Hash all weights and the vocabulary: equal fingerprints mean equal models."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.module.state_dict().items():
        digest.update(name.encode())
        data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)  # NumPy has no bfloat16
        digest.update(data.numpy().tobytes())
    digest.update(repr(sorted(model.tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()
