"""A client's side of a deployment: its own data, the server's task and model, and nothing offered that is not marked."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.script import ClientId, all_client_methods
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
from motet.experiment.build.feature_cache import load_features
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.group_builder import build_group
from motet.experiment.recipe.config_parsing import instantiate, look_up
from motet.experiment.recipe.recipe_files import parse_overrides
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.executors.serial_executor import PrefixCache
from motet.learning.modules.model import Model
from motet.models.load_model import load_model
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.tasks import TASKS, Task
from motet.transport.admission import JoinAccepted
from motet.transport.client_connection import ClientSetup
from motet.transport.client_runtime import ClientRuntime
from motet.transport.journal import Journal

FROM_WORDS = ("tiny", "bilstm")  # models whose vocabulary is the corpus's own; the server's words are sent along


def build_acceptance(config: RunConfig, federation: Federation, run: str, session: str) -> JoinAccepted:
    """What the server tells a client. The config's `data`, which say where the server's own texts are, travel with the rest:
    the digest is of all of it. A client with its own data opens nothing that they name."""
    said = {
        name: value for name, value in config.to_dict().items() if name not in ("transport", "checkpoint", "baselines")
    }
    pairs = zip(config.client_groups, federation.groups, strict=True)
    return JoinAccepted(
        run, session, config.digest, said, {group.name: _told(choice, group) for choice, group in pairs}
    )


def _told(choice: GroupConfig, group: ClientGroup) -> dict[str, Any]:
    task: Any = group.task
    words = group.model.tokenizer.backend_tokenizer.to_str() if choice.model.name in FROM_WORDS else ""
    return {"task": {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}, "words": words}


def model_fingerprint(model: Model) -> str:
    """Of all weights and the tokenizer: two sides with the same one hold the same model."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes() if tensor.numel() else b"")
    digest.update(repr(sorted(model.tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class JoinOptions:
    """What a client brings: its names, and either its own data or the recipe whose clients it plays (no names: any).
    `group` is the one of the recipe's groups that its own data are for."""

    names: tuple[ClientId, ...]
    data: DataConfig | None
    config: RunConfig | None
    memory: Path
    device: str = "auto"
    only_sums: bool = False
    group: str = ""


class ClientBuilder:
    """Builds a client's side from a welcome: once, for links break more often than runs change."""

    def __init__(self, own: JoinOptions, told: Callable[[str], None] = lambda text: None) -> None:
        self.own, self.told = own, told
        self.scratch = PrefixCache()
        self.built: tuple[str, ClientSetup] | None = None

    def __call__(self, welcome: JoinAccepted) -> ClientSetup:
        key = f"{welcome.run} {welcome.digest}"
        if self.built is None or self.built[0] != key:
            self.built = (key, self._side(welcome))
        return self.built[1]

    def close(self) -> None:
        if self.built is not None:
            self.built[1].runtime.executor.close()
        self.scratch.close()

    def _side(self, welcome: JoinAccepted) -> ClientSetup:
        own = self.own
        if not re.fullmatch(r"[0-9a-f]{8,64}", welcome.run):
            raise ConfigError(
                "the server's name for the run is not made of digits a client would use in a file's name."
            )
        config = own.config if own.config is not None else RunConfig.from_settings("server", welcome.config)
        components = build_components(config)
        config = resolve_defaults(config, components.algorithm)
        if config.digest != welcome.digest:
            raise ConfigError(
                f"what the server says of the run has digest {config.digest}, not {welcome.digest} as it claims; "
                "use the same version of Motet on both sides."
            )
        federation = build_federation(config) if own.data is None else build_client_federation(config, welcome, own)
        journal = Journal(own.memory / welcome.run)
        executor = create_executor(resolve_device(own.device), InProcessOptions(0), [federation], self.scratch)
        told = ", ".join(
            f"{address} ({reveals})"
            for program in components.client_programs
            for address, reveals in all_client_methods(program).items()
        )
        for name in own.names[:3]:
            self.told(f"{name} has {federation.participant(name).size} examples")
        self.told(f"offered to the server: {told}")
        options: dict[str, Any] = {
            "sums_only": own.only_sums,
            "required_wrappers": components.required_wrappers,
            "hide_errors": True,
        }
        host = ClientRuntime(
            components.client_programs, federation.context, executor, journal, components.channel, **options
        )
        return ClientSetup(host, journal, model_fingerprint(federation.model))


def parse_client_data(path: Path, settings: Iterable[str]) -> DataConfig:
    """A client's own file; of its settings only those of the data are its to give, the others are the server's."""
    given = parse_overrides(settings)
    if odd := [name for name in given if name != "data"]:
        raise ConfigError(
            f"join: '{odd[0]}' is the server's to say; with --data you may give data.text=…, data.label=… alone."
        )
    return instantiate(DataConfig, {**given.get("data", {}), "path": str(path)}, "data")


def build_client_federation(config: RunConfig, welcome: JoinAccepted, own: JoinOptions) -> Federation:
    """One client, with its own texts. Labels, tokenizer and model are those of its group at the server."""
    if own.data is None:
        raise ConfigError("join: give --data with your own texts.")
    name, choice = find_group(config, welcome, own.group)
    task, words = deserialize_task(welcome.groups[name]), str(welcome.groups[name].get("words", ""))
    seed = Seed(config.seed)
    corpus = load_corpus(own.data, seed, task.name)
    model = load_model(choice.model, task.name, task.labels, lambda: words, seed)
    features = load_features(task, corpus, model, choice.model.max_tokens)
    train = ClientRows.from_sizes(np.arange(corpus.num_train), np.array([corpus.num_train]))
    test = ClientRows.from_sizes(np.arange(corpus.num_train, len(corpus)), np.array([len(corpus) - corpus.num_train]))
    partition = Partition(train, test, {"type": "silo"}, NamedClients(np.array([own.names[0]])))
    group = build_group(
        name=name,
        task=task,
        model=model,
        corpus=corpus,
        features=features,
        partition=partition,
        max_tokens=choice.model.max_tokens,
        clients=ClientRange(names=partition.clients, start=0, stop=1),
    )
    return Federation((group,), group, seed)


def find_group(config: RunConfig, welcome: JoinAccepted, wanted: str) -> tuple[str, GroupConfig]:
    """The group a client belongs to, by its name; where all are alike, there is one and nobody need name it."""
    if len(welcome.groups) != len(config.client_groups):
        raise ConfigError(
            f"the server speaks of {len(welcome.groups)} groups and its recipe has {len(config.client_groups)}."
        )
    known = dict(zip(welcome.groups, config.client_groups, strict=True))
    if len(known) == 1 and not wanted:
        return next(iter(known.items()))
    if wanted not in known:
        raise ConfigError(f"--group is '{wanted}'; the server's groups are {', '.join(known)}.")
    return wanted, known[wanted]


def deserialize_task(told: Mapping[str, Any]) -> Task:
    """A task is a value: its fields travel."""
    fields = told.get("task")
    if not isinstance(fields, dict):
        raise ConfigError("the server says nothing of the task; use the same version of Motet on both sides.")
    kind = get_type_hints(look_up(TASKS, fields.get("name"), "the server's task"))["return"]
    try:
        task: Task = kind(**fields)
    except TypeError as error:
        raise ConfigError(
            f"the server's task cannot be read ({error}); use the same version of Motet on both sides."
        ) from None
    return task
