"""A run, completely described. A recipe is what is left of it when the defaults are taken away."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.core.errors import ConfigError
from motet.datasets.load import DataChoice
from motet.experiment.options import fill
from motet.models.load import ModelChoice
from motet.transport.patience import Patience


@dataclass(frozen=True)
class Choice:
    """An entry of one of the tables, and its own options."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(given: Any, default: str, where: str) -> Choice:
        if given is None:
            return Choice(default)
        if isinstance(given, str):
            return Choice(given)
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where} is {given!r}; expected a name, or a section with type and options.")
        options = dict(given)
        return Choice(str(options.pop("type", default)), options)


@dataclass(frozen=True)
class CohortChoice:
    """How many clients take part in a round, and how they are drawn."""

    size: int | None = None  # None: all
    sampler: str = (
        "round"  # round: the same cohorts whatever the seed, as FedNLP draws them; seeded: other cohorts for other seeds
    )

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ConfigError(f"cohort.size is {self.size}; at least one client must take part, or leave it out for all.")
        if self.sampler not in ("round", "seeded"):
            raise ConfigError(f"cohort.sampler is '{self.sampler}'; it is 'round' or 'seeded'.")


@dataclass(frozen=True)
class Evaluation:
    """When the global test set is looked at, and for how many clients the personal models are."""

    every: int = 1
    clients: int | None = None  # at most so many clients' own models and test sets; None: all

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"evaluation.every is {self.every}; it is a number of rounds of at least 1.")


@dataclass(frozen=True)
class Checkpointing:
    seconds: float = 20.0  # not more often than this; the last round is always kept


@dataclass(frozen=True)
class Config:
    recipe: str
    seed: int = 42
    rounds: int = 10
    device: str = "auto"
    task: Choice = Choice("auto")  # the formulation the corpus is for
    model: ModelChoice = ModelChoice()
    data: DataChoice = DataChoice()
    partition: Choice = Choice("uniform")
    cohort: CohortChoice = CohortChoice()
    algorithm: Choice = Choice("fedavg")
    solver: Mapping[str, Any] = field(default_factory=dict)  # what differs from the algorithm's own
    server: Mapping[str, Any] = field(default_factory=dict)
    codec: tuple[str, ...] = ()
    secure: Choice = Choice("none")
    patience: Patience = Patience()
    transport: Choice = Choice("in_process")
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpointing = Checkpointing()
    baselines: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}; at least 1 is needed.")

    @staticmethod
    def of(recipe: str, given: Mapping[str, Any]) -> Config:
        """From nested options, as YAML gives them."""
        sections = dict(given)
        defaults = {f.name: f.default for f in dataclasses.fields(Config)}
        for name, default in defaults.items():
            if isinstance(default, Choice) and name in sections:
                sections[name] = Choice.of(sections[name], default.type, name)
        return fill(Config, {"recipe": recipe, **sections}, "")

    def plain(self) -> dict[str, Any]:
        """Nested options again, with all defaults, for config.yaml."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        """What must agree between those who run together; where it runs and what is only looked at do not matter."""
        said = self.plain()
        for name in ("recipe", "device", "transport", "evaluation", "checkpoint", "baselines"):
            said.pop(name)
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return {"type": value.type, **{k: _plain(v) for k, v in value.options.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value
