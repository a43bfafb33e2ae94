"""A run, completely described. A recipe is what is left of it when the defaults are taken away."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from motet.core.errors import ConfigError
from motet.datasets.load_corpus import DataConfig
from motet.experiment.recipe.config_parsing import fill
from motet.experiment.recipe.group_defaults import spelt_out
from motet.experiment.recipe.renamed_keys import update_names
from motet.models.load_model import ModelConfig
from motet.transport.emulated_network import Network
from motet.transport.wait_policy import WaitPolicy

T = TypeVar("T")


@dataclass(frozen=True)
class ComponentConfig:
    """An entry of one of the tables, and its own options."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(given: Any, default: str, where: str) -> ComponentConfig:
        if given is None:
            return ComponentConfig(default)
        if isinstance(given, str):
            return ComponentConfig(given)
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where} is {given!r}; expected a name, or a section with type and options.")
        options = dict(given)
        return ComponentConfig(str(options.pop("type", default)), options)


@dataclass(frozen=True)
class GroupConfig:
    """Some of the clients, alike in task, model and corpus. Groups of the same data and partition divide it among them."""

    name: str | None = None  # None: the corpus's or the model's, whichever tells groups apart
    clients: int | None = None  # None: all that the partition has left
    task: ComponentConfig = ComponentConfig("auto")
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    partition: ComponentConfig = ComponentConfig("uniform")

    def __post_init__(self) -> None:
        if self.clients is not None and self.clients < 1:
            raise ConfigError(f"groups: clients is {self.clients}; a group has at least one, or leave it out for all.")


@dataclass(frozen=True)
class CodecConfig:
    """Which codecs stand in line, up and down: names, or names with options. One list is for both ways."""

    up: tuple[ComponentConfig, ...] = ()
    down: tuple[ComponentConfig, ...] = ()

    @staticmethod
    def of(given: Any) -> CodecConfig:
        if isinstance(given, Mapping) and given and set(given) <= {"up", "down"}:
            return CodecConfig(_in_line(given.get("up")), _in_line(given.get("down")))
        return CodecConfig(_in_line(given), _in_line(given))


def _in_line(given: Any) -> tuple[ComponentConfig, ...]:
    """`int8`, `[top_k: {share: 0.01}, int8]`, `[{type: top_k, share: 0.01}]`."""
    found = []
    for entry in given if isinstance(given, list | tuple) else [] if given is None else [given]:
        if isinstance(entry, Mapping) and len(entry) == 1 and "type" not in entry:
            name, options = next(iter(entry.items()))
            entry = {"type": name, **(options or {})}  # noqa: PLW2901
        found.append(ComponentConfig.of(entry, "", "codec"))
    return tuple(found)


@dataclass(frozen=True)
class CohortConfig:
    """How many clients take part in a round, and how they are drawn."""

    size: int | None = None  # None: all
    sampler: str = "round"  # round: the same cohorts whatever the seed, as FedNLP draws them; seeded: other cohorts for other seeds

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ConfigError(
                f"cohort.size is {self.size}; at least one client must take part, or leave it out for all."
            )
        if self.sampler not in ("round", "seeded"):
            raise ConfigError(f"cohort.sampler is '{self.sampler}'; it is 'round' or 'seeded'.")


@dataclass(frozen=True)
class EvaluationConfig:
    """When the global test set is looked at, and for how many clients the personal models are."""

    every: int = 1
    clients: int | None = None  # at most so many clients' own models and test sets; None: all
    by_client: bool = False  # the common model on each client's test set too, whenever the global one is looked at
    local: bool = False  # look at the clients' own test sets each time, and not only at the end
    choose: str | None = (
        None  # the metric by which a development set (data.dev_share) chooses the round; None: the headline
    )
    reach: tuple[float, ...] = ()  # values of the headline; the summary says what it took to reach each
    items: bool = False  # keep the score of every item of the clients' own test sets too, for significance

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"evaluation.every is {self.every}; it is a number of rounds of at least 1.")


@dataclass(frozen=True)
class CheckpointConfig:
    seconds: float = 20.0  # not more often than this, nor a twentieth of the time; 0: after every round
    last: bool = True  # also after the last round: what export and replay begin from
    memory: float | None = None  # GiB of clients' memories that need not lie on disk; None: as what is free allows

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < 0:
            raise ConfigError(f"checkpoint.memory is {self.memory}; it is in GiB, 0 or more.")


@dataclass(frozen=True)
class RunConfig:
    recipe: str
    seed: int = 42
    rounds: int = 10
    device: str = "auto"
    task: ComponentConfig = ComponentConfig("auto")  # the formulation the corpus is for
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    partition: ComponentConfig = ComponentConfig("uniform")
    groups: tuple[GroupConfig, ...] = ()  # none: all clients are alike, as the sections above say
    cohort: CohortConfig = CohortConfig()
    algorithm: ComponentConfig = ComponentConfig("fedavg")
    solver: Mapping[str, Any] = field(default_factory=dict)  # what differs from the algorithm's own
    server: Mapping[str, Any] = field(default_factory=dict)
    codec: CodecConfig = CodecConfig()
    secure: ComponentConfig = ComponentConfig("none")
    privacy: ComponentConfig = ComponentConfig("none")
    wait_policy: WaitPolicy = WaitPolicy()
    transport: ComponentConfig = ComponentConfig("in_process")
    network: Network | None = None  # emulated: how long a simulation's messages would have taken
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    baselines: Mapping[str, Any] = field(default_factory=dict)
    track: tuple[str, ...] = ()  # who else is told of every round: tensorboard, wandb, mlflow

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}; at least 1 is needed.")

    @staticmethod
    def of(recipe: str, given: Mapping[str, Any]) -> RunConfig:
        """From nested options, as YAML gives them."""
        sections = update_names(given)
        groups = spelt_out(sections, sections.pop("groups", None) or ())
        sections["groups"] = tuple(_chosen(GroupConfig, group, f"groups[{i}]") for i, group in enumerate(groups))
        sections["codec"] = CodecConfig.of(sections.get("codec"))
        return _chosen(RunConfig, {"recipe": recipe, **sections}, "")

    @property
    def everybody(self) -> tuple[GroupConfig, ...]:
        """The groups; where none are named, the one that all clients are."""
        alike = GroupConfig(task=self.task, model=self.model, data=self.data, partition=self.partition)
        return self.groups or (alike,)

    def plain(self) -> dict[str, Any]:
        """Nested options again, with all defaults, for config.yaml."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        """What must agree between those who run together; where it runs and what is only looked at do not matter."""
        said = self.plain()
        for name in ("recipe", "device", "transport", "network", "evaluation", "checkpoint", "baselines", "track"):
            said.pop(name)
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _chosen(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """Fill a dataclass some of whose fields are choices."""
    sections = dict(given)
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        if isinstance(f.default, ComponentConfig) and f.name in sections:
            sections[f.name] = ComponentConfig.of(sections[f.name], f.default.type, f"{where}.{f.name}".lstrip("."))
    return fill(kind, sections, where)


def _plain(value: Any) -> Any:
    if isinstance(value, ComponentConfig):
        return {"type": value.type, **{k: _plain(v) for k, v in value.options.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value
