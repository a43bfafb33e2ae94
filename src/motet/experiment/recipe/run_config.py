"""The complete configuration of a run. A recipe holds only the settings that differ from the defaults."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from motet.core.errors import ConfigError
from motet.datasets.load_corpus import DataConfig
from motet.experiment.recipe.config_digest import hash_settings
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.group_defaults import expand_groups
from motet.experiment.recipe.renamed_keys import update_names
from motet.models.model_config import ModelConfig
from motet.transport.emulated_network import Network
from motet.transport.wait_policy import WaitPolicy

T = TypeVar("T")
_FOLDER_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,100}")
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class ComponentConfig:
    """A component by its name in a table (of algorithms, partitions, …), with its options."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen_type(self) -> str | None:
        """The type; None for `auto`."""
        return None if self.type == "auto" else self.type

    @staticmethod
    def from_settings(settings: Any, default: str, path: str) -> ComponentConfig:
        """Parse `fedavg`, `{type: fedprox, mu: 0.1}`, or None for the default."""
        if settings is None:
            return ComponentConfig(default)
        if isinstance(settings, str):
            return ComponentConfig(settings)
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{path} is {settings!r}; expected a name, or a section with type and options.")
        options = dict(settings)
        return ComponentConfig(str(options.pop("type", default)), options)


@dataclass(frozen=True)
class GroupConfig:
    """Clients with the same task, model and corpus. Groups with the same data and partition divide its clients."""

    name: str | None = None  # None: the name of the corpus or, if all groups have the same, of the model
    clients: int | None = None  # None: all clients of the partition that no other group has
    task: ComponentConfig = ComponentConfig("auto")  # auto: the task formulation of the corpus
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    partition: ComponentConfig = ComponentConfig("auto")  # see [partitions](components.md#partitions)

    def __post_init__(self) -> None:
        if self.clients is not None and self.clients < 1:
            raise ConfigError(
                f"groups: clients is {self.clients}; expected at least one. Leave it out for all remaining clients."
            )


@dataclass(frozen=True)
class CodecConfig:
    """The codecs of updates (`up`) and of the global model (`down`), in the order in which they encode."""

    up: tuple[ComponentConfig, ...] = ()
    down: tuple[ComponentConfig, ...] = ()

    @staticmethod
    def from_settings(settings: Any) -> CodecConfig:
        """Parse `{up: …, down: …}`, or one chain for both directions."""
        if isinstance(settings, Mapping) and settings and set(settings) <= {"up", "down"}:
            return CodecConfig(up=_parse_chain(settings.get("up")), down=_parse_chain(settings.get("down")))
        return CodecConfig(up=_parse_chain(settings), down=_parse_chain(settings))


def _parse_chain(settings: Any) -> tuple[ComponentConfig, ...]:
    """Parse `int8`, `[top_k: {share: 0.01}, int8]` or `[{type: top_k, share: 0.01}]`."""
    chain = []
    for entry in settings if isinstance(settings, list | tuple) else [] if settings is None else [settings]:
        if isinstance(entry, Mapping) and len(entry) == 1 and "type" not in entry:
            name, options = next(iter(entry.items()))
            if not isinstance(options, Mapping | None):
                raise ConfigError(f"codec.{name} is {options!r}; expected options, such as {{share: 0.01}}.")
            entry = {"type": name, **(options or {})}  # noqa: PLW2901
        chain.append(ComponentConfig.from_settings(entry, "", "codec"))
    return tuple(chain)


@dataclass(frozen=True)
class OortConfig:
    """Cohorts by utility and speed (`cohort.sampler=oort`, Lai et al. 2021). The defaults are those of the authors."""

    exploration: float = 0.9  # share of new clients in the first round; it falls by 2 % per round, to 0.2
    penalty: float = 2.0  # exponent α of the penalty for clients that are slower than the preferred duration
    pace: float = 0.3  # the preferred duration is this percentile of the durations so far; the pacer raises it by 0.05
    window: int = 20  # the pacer compares the last rounds, this many, with as many before
    max_picks: int | None = (
        None  # clients that took part this often are left out if there are enough others; None: never
    )
    report_utility: bool = False  # ask clients in other processes for their utility, which their policies must allow

    def __post_init__(self) -> None:
        for name in ("exploration", "pace"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"cohort.oort.{name} is {getattr(self, name)}; expected a share between 0 and 1.")
        if not self.penalty >= 0:
            raise ConfigError(f"cohort.oort.penalty is {self.penalty}; expected a number of at least 0.")
        for name in ("window", "max_picks"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(
                    f"cohort.oort.{name} is {getattr(self, name)}; expected a number of rounds, at least 1."
                )


@dataclass(frozen=True)
class CohortConfig:
    """How many clients take part in a round, and how they are sampled."""

    size: int | None = None  # clients per round; None: all
    sampler: str = "round"  # round: by the round's number, as in FedNLP; seeded: and the run's seed; even: fixed; oort
    oort: OortConfig = OortConfig()  # options of the sampler oort: by utility and speed

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ConfigError(f"cohort.size is {self.size}; expected at least one client. Leave it out for all.")
        if self.sampler not in ("round", "seeded", "even", "oort"):
            raise ConfigError(f"cohort.sampler is '{self.sampler}'; expected 'round', 'seeded', 'even' or 'oort'.")

    @property
    def reports_utility(self) -> bool:
        """True if clients in other processes send the utility of their trainings."""
        return self.sampler == "oort" and self.oort.report_utility


@dataclass(frozen=True)
class EvaluationConfig:
    """When the model is evaluated, and on which test sets."""

    every: int = 1  # rounds between two evaluations
    clients: int | None = None  # largest number of clients that evaluate their own models, evenly spaced; None: all
    by_client: bool = False  # also evaluate the global model on each client's test set
    test: bool = True  # false: evaluate only on the development set, as in the trials of a search
    local: bool = False  # evaluate the clients' own test sets every time, not only at the end
    best_round_metric: str | None = None  # metric that selects the best round on the dev set; None: the primary metric
    keep: Literal["last", "best"] = "last"  # which model is saved and scored: the last, or the best on the dev set
    patience: int | None = None  # stop after this many evaluations without a better score on the dev set; None: never
    target_scores: tuple[float, ...] = ()  # values of the primary metric; the summary shows the cost of reaching each
    initial: bool = False  # also evaluate the model before the first round
    samples: int = 8  # texts that a generating model writes before and after training, in samples.json
    save_example_scores: bool = False  # also keep per-example scores of the clients' test sets, for significance tests

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"evaluation.every is {self.every}; expected a number of rounds, at least 1.")
        if self.clients is not None and self.clients < 1:
            raise ConfigError(
                f"evaluation.clients is {self.clients}; expected at least one client. Leave it out for all."
            )
        if self.samples < 0:
            raise ConfigError(f"evaluation.samples is {self.samples}; expected a number of texts, at least 0.")
        if self.patience is not None and self.patience < 1:
            raise ConfigError(
                f"evaluation.patience is {self.patience}; expected a number of evaluations, at least 1. Leave it out to "
                "run all rounds."
            )


@dataclass(frozen=True)
class CheckpointConfig:
    """How often a run is saved."""

    seconds: float = 20.0  # minimum time between checkpoints, which take at most 1/20 of the time; 0: every round
    last: bool = True  # save after the last round too; export and replay need it
    memory: float | None = None  # GiB of client state kept in memory instead of on disk; None: depends on free memory

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigError(f"checkpoint.seconds is {self.seconds}; expected a number of seconds, 0 or more.")
        if self.memory is not None and self.memory < 0:
            raise ConfigError(f"checkpoint.memory is {self.memory}; expected GiB, 0 or more.")


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run."""

    recipe: str
    seed: int = 42  # random seed of initial weights, samples, batches and cohorts; the same seed gives the same result
    rounds: int = 10  # training rounds, each with a cohort of clients; at least 1
    device: str = "auto"  # auto, cpu, cuda, cuda:0 or mps
    precision: Precision = "auto"  # for matrix products; auto: bfloat16 on NVIDIA GPUs that have it, else float32
    task: ComponentConfig = ComponentConfig("auto")  # see: motet list tasks; auto: the task of the corpus
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    partition: ComponentConfig = ComponentConfig("auto")
    groups: tuple[GroupConfig, ...] = ()  # clients with their own task, model and data; empty: all have those above
    cohort: CohortConfig = CohortConfig()
    algorithm: ComponentConfig = ComponentConfig("fedavg")
    solver: Mapping[str, Any] = field(default_factory=dict)  # changes to the algorithm's default solver
    server: Mapping[str, Any] = field(default_factory=dict)  # changes to the algorithm's default server optimizer
    codec: CodecConfig = CodecConfig()
    secure: ComponentConfig = ComponentConfig("none")
    privacy: ComponentConfig = ComponentConfig("none")
    robust: ComponentConfig = ComponentConfig("none")
    attack: ComponentConfig = ComponentConfig("none")
    wait_policy: WaitPolicy = WaitPolicy()
    transport: ComponentConfig = ComponentConfig("in_process")
    network: Network | None = None  # emulated bandwidth and latency, for simulations
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    baselines: Mapping[str, Any] = field(default_factory=dict)  # more runs: name -> settings that differ
    track: tuple[str, ...] = ()  # experiment trackers: tensorboard, wandb, mlflow

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}; expected at least 1.")

    @staticmethod
    def from_settings(recipe: str, settings: Mapping[str, Any]) -> RunConfig:
        """Build from nested settings, as YAML gives them."""
        sections = update_names(settings)
        baselines = sections.get("baselines")
        for name in baselines if isinstance(baselines, Mapping) else ():
            require_folder_name(name, "baselines")
        groups = expand_groups(sections, sections.pop("groups", None) or ())
        sections["groups"] = tuple(_build(GroupConfig, group, f"groups[{i}]") for i, group in enumerate(groups))
        sections["codec"] = CodecConfig.from_settings(sections.get("codec"))
        return _build(RunConfig, {"recipe": recipe, **sections}, "")

    @property
    def client_groups(self) -> tuple[GroupConfig, ...]:
        """The groups; without any, a single group with all clients."""
        single = GroupConfig(task=self.task, model=self.model, data=self.data, partition=self.partition)
        return self.groups or (single,)

    def to_dict(self) -> dict[str, Any]:
        """Return nested settings with all defaults, as they are written to config.yaml."""
        return {f.name: _to_plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        """A hash of the settings that must agree between server and clients, and between a run and its resumed part."""
        return hash_settings(self.to_dict())


def require_folder_name(name: str, path: str) -> None:
    """Raise an error if a name in a recipe or a suite cannot be the name of a folder or file in the folder of a run."""
    if not _FOLDER_NAME.fullmatch(name):
        raise ConfigError(
            f"{path}: '{name}' cannot be the name of a folder; expected 1 to 100 characters without / and \\, and no dot "
            "first. Choose another name."
        )


def _build(kind: type[T], settings: Mapping[str, Any], path: str) -> T:
    """Build a configuration class, with its `ComponentConfig` fields parsed first."""
    sections = dict(settings)
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        if isinstance(f.default, ComponentConfig) and f.name in sections:
            component = f"{path}.{f.name}".lstrip(".")
            sections[f.name] = ComponentConfig.from_settings(sections[f.name], f.default.type, component)
    return instantiate(kind, sections, path)


def _to_plain(value: Any) -> Any:
    if isinstance(value, ComponentConfig):
        return {"type": value.type, **{k: _to_plain(v) for k, v in value.options.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_to_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _to_plain(v) for k, v in value.items()}
    return value
