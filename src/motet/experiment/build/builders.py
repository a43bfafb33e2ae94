"""Put a run together from its description; whatever cannot work is found here, before anything trains."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import torch

from motet.algorithms import ALGORITHMS
from motet.codecs import CODECS
from motet.codecs.chain import Channel, CodecChain
from motet.core.errors import ConfigError, DataError, PrivacyError
from motet.core.layers import Layers
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.script import all_client_methods
from motet.core.work import Executor
from motet.datasets.corpus import TASK_COLUMNS, Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.feature_cache import cached_features
from motet.experiment.build.federation import Federation, Group, Members, arranged
from motet.experiment.build.partition_builder import divided
from motet.experiment.recipe.config_parsing import instantiate, list_parameters, look_up
from motet.experiment.recipe.run_config import ComponentConfig, GroupConfig, RunConfig
from motet.learning.data.features import Features
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor, default_worker_count
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.modules.model import Model
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig, load_model
from motet.optim import SERVER_OPTIMIZERS
from motet.partitions import Partition
from motet.partitions.dev_split import hold_out_dev
from motet.partitions.public_split import hold_out_public
from motet.privacy import PRIVACY
from motet.secure import SECURE
from motet.tasks import TASKS, Task
from motet.transport.fault_injection import Faults

if TYPE_CHECKING:
    from motet.privacy.dp_sum import PrivateSum
    from motet.secure.protocol import SecureSum

TRANSPORTS = {
    "in_process": "clients are simulated in this process, their work shared out over its cores or its GPU",
    "grpc": "clients are silos with their own data (motet serve, motet join); with motet run, processes of this machine",
    "mqtt": "the same over a broker (transport.broker=host:port), for clients that come and go; without one, one of our own",
    "mpi": "clients are shared out over the processes of a cluster: mpirun -n 5 motet run … --transport mpi",
    "ray": "clients are simulated here, their jobs done by Ray's actors (transport.address=… for a cluster), one a GPU or core",
}


@dataclass(frozen=True)
class InProcessOptions:
    workers: int | None = None  # on CPU. None: one a core; 0: no worker processes
    width: int | None = None  # on a GPU, how many clients train side by side. None: as many as memory allows
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # on a GPU, of products; auto: bfloat16
    record: bool = True  # on a GPU, replay recorded steps (CUDA graphs)
    faults: Faults = Faults()  # messages that a simulation loses, repeats, shuffles, delays

    def __post_init__(self) -> None:
        if self.width is not None and self.width < 1:
            raise ConfigError(f"transport.width is {self.width}; it is a number of clients, at least 1.")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"transport.workers is {self.workers}; it is a number of processes, or 0 for none.")


@dataclass(frozen=True, eq=False)
class Population:
    """A corpus divided over clients, whatever their models."""

    corpus: Corpus
    task: Task
    partition: Partition


CorpusOf = Callable[[DataConfig, Seed, str | None], Corpus]


def build_federation(config: RunConfig, corpus_of: CorpusOf = load_corpus) -> Federation:
    """Groups of the same data, task and partition divide one population among them, in order."""
    seed, groups = Seed(config.seed), config.client_groups
    together: dict[str, list[GroupConfig]] = {}
    for group in groups:
        together.setdefault(_source(group), []).append(group)
    populations = {key: _population(same, seed, corpus_of) for key, same in together.items()}
    counts = {key: iter(_counts(same, populations[key])) for key, same in together.items()}
    names, parts = _names(groups, populations), []
    taken: dict[str, Members] = {}
    for group, name in zip(groups, names, strict=True):
        key = _source(group)
        before = taken.get(key)
        first, prefix = (before.last, before.prefix) if before else (0, f"{name}/" if len(together) > 1 else "")
        taken[key] = Members(populations[key].partition.clients, first, first + next(counts[key]), prefix)
        parts.append((name, populations[key], taken[key], group.model))
    return _gathered(parts, config.model, seed)


def make_federation(
    model: ModelConfig,
    corpus: Corpus,
    partition: ComponentConfig,
    seed: Seed,
    task_choice: ComponentConfig = ComponentConfig("auto"),
    public: float = 0.0,
    dev: float = 0.0,
) -> Federation:
    """One corpus over clients that are all alike; `public` is the share that all may read, `dev` that nobody trains on."""
    whole = _divided_over(corpus, task_choice, partition, seed, public, dev)
    members = Members(whole.partition.clients, 0, len(whole.partition))
    return _gathered([(corpus.name, whole, members, model)], model, seed)


def _gathered(
    parts: Sequence[tuple[str, Population, Members, ModelConfig]], server: ModelConfig, seed: Seed
) -> Federation:
    """Models of the same choice are loaded once, texts read by the same model tokenised once."""
    corpora = list({id(whole.corpus): whole.corpus for _, whole, _, _ in parts}.values())
    models: dict[tuple[str, ...], Model] = {}
    read: dict[tuple[int, str], Features] = {}

    def group(name: str, whole: Population, members: Members, choice: ModelConfig) -> Group:
        said = (repr(choice), whole.task.name, *whole.task.labels)
        if (
            said not in models
        ):  # a vocabulary is made from all corpora: embeddings that are averaged must mean the same words
            texts = partial(chain.from_iterable, map(vocabulary_texts, corpora))
            models[said] = load_model(choice, whole.task.name, whole.task.labels, texts, seed)
        model, corpus = models[said], whole.corpus
        if (id(whole), model.key) not in read:
            read[id(whole), model.key] = cached_features(whole.task, corpus, model, choice.max_tokens)
        features = read[id(whole), model.key]
        return arranged(name, whole.task, model, corpus, features, whole.partition, choice.max_tokens, members)

    groups = tuple(group(*part) for part in parts)
    _, first, _, _ = parts[0]
    return Federation(
        groups, group("server", first, Members(first.partition.clients, 0, len(first.partition)), server), seed
    )


def _source(group: GroupConfig) -> str:
    division = (group.partition.type, sorted((k, str(v)) for k, v in group.partition.options.items() if k != "clients"))
    return repr((group.data, group.task, division))


def _population(same: Sequence[GroupConfig], seed: Seed, corpus_of: CorpusOf) -> Population:
    one = same[0]
    corpus = corpus_of(one.data, seed, None if one.task.type == "auto" else one.task.type)
    counts = [group.clients for group in same]
    partition = one.partition
    if None not in counts:
        partition = ComponentConfig(partition.type, {**partition.options, "clients": sum(n or 0 for n in counts)})
    return _divided_over(corpus, one.task, partition, seed, one.data.public_share, one.data.dev_share)


def _divided_over(
    corpus: Corpus, task: ComponentConfig, partition: ComponentConfig, seed: Seed, public: float, dev: float
) -> Population:
    if len(corpus) == corpus.num_train:
        raise DataError(
            f"{corpus.name}: there are no test rows, so nothing could be judged; set data.test or data.test_share."
        )
    made = divided(partition, corpus, seed)
    if dev:
        made = hold_out_dev(made, dev, seed.derive("partition"))
        if made.dev is not None and not len(made.dev):
            raise ConfigError(
                f"data.dev_share is {dev:g}, but no client has more than one training row, so that none can be put aside; "
                "divide the corpus over fewer clients, or leave it out."
            )
    return Population(
        corpus, build_task(task, corpus), hold_out_public(made, public, seed.derive("partition")) if public else made
    )


def _names(groups: Sequence[GroupConfig], populations: Mapping[str, Population]) -> list[str]:
    """The group's own name, or its corpus's where corpora differ, else its model's; numbered where another has it too."""
    found: list[str] = []
    for group in groups:
        corpus = populations[_source(group)].corpus.name
        name = group.name or (corpus if len(populations) > 1 or len(groups) == 1 else group.model.name)
        number = 1 + sum(other.partition("#")[0] == name for other in found)
        found.append(name if number == 1 else f"{name}#{number}")
    return found


def _counts(same: Sequence[GroupConfig], whole: Population) -> list[int]:
    """How many clients of a population each of its groups has; one group may take all that the others leave."""
    there, said = len(whole.partition), [group.clients for group in same]
    rest = there - sum(n or 0 for n in said)
    if (rest and None not in said) or rest < said.count(None) or said.count(None) > 1:
        raise ConfigError(
            f"groups: {whole.corpus.name} is divided over {there} clients ({same[0].partition.type}), and its groups ask for "
            f"{', '.join('the rest' if n is None else str(n) for n in said)}; let their 'clients' sum to {there}, or leave it "
            "out in one of them."
        )
    return [rest if n is None else n for n in said]


def build_task(choice: ComponentConfig, corpus: Corpus) -> Task:
    """The formulation that the recipe names, or the one the corpus is for."""
    name = corpus.task if choice.type == "auto" else choice.type
    maker = look_up(TASKS, name, "task.type")
    if TASK_COLUMNS[name] != TASK_COLUMNS[corpus.task]:
        needs = ", ".join(c for c in TASK_COLUMNS[name] if c not in corpus.columns)
        if needs:
            raise ConfigError(
                f"task.type is {name}, but {corpus.name} is a corpus for {corpus.task}: it has no {needs}."
            )
    return instantiate(maker, choice.options, "task", {"corpus": corpus})


def vocabulary_texts(corpus: Corpus) -> Iterator[str]:
    """All training texts, for models that make their vocabulary from them."""
    for name in ("text", "second", "words", "context", "question", "source", "target"):
        for value in corpus.columns.get(name, ())[: corpus.num_train]:
            yield value if isinstance(value, str) else " ".join(value)


def build_algorithm(config: RunConfig) -> Algorithm:
    """The algorithm with its own defaults, changed where the recipe says so."""
    name = config.algorithm.type
    maker = look_up(ALGORITHMS, name, "algorithm.type")
    taken = list_parameters(maker)
    fixed: dict[str, Any] = {"solver": solver_of(config, taken["solver"])}
    if "server" in taken:
        fixed["server"] = _server(config, taken["server"])
    elif config.server:
        raise ConfigError(
            f"{name} has no server optimiser, so server.{next(iter(config.server))} means nothing; remove it."
        )
    return instantiate(maker, config.algorithm.options, name, fixed)


def solver_of(config: RunConfig, parameter: inspect.Parameter) -> Solver:
    default = parameter.default
    kept = dataclasses.asdict(default)
    given = dict(config.solver)
    if "optimizer" in given and given["optimizer"] != default.optimizer and "lr" not in given:
        kept["lr"] = None
    return instantiate(Solver, {**kept, **given}, "solver")


def _server(config: RunConfig, parameter: inspect.Parameter) -> Any:
    default: Any = parameter.default
    given = dict(config.server)
    name = given.pop("type", None)
    kind = type(default) if name is None else look_up(SERVER_OPTIMIZERS, name, "server.type")
    kept: dict[str, Any] = {**vars(default)} if kind is type(default) else {}
    return instantiate(kind, {**kept, **given}, "server")


def resolved(config: RunConfig) -> RunConfig:
    """The same run with nothing left to an algorithm's own defaults."""
    algorithm: Any = build_algorithm(config)
    solver = {**dataclasses.asdict(algorithm.solver), "lr": algorithm.solver.learning_rate}
    del solver["proximal_mu"]  # set by the algorithm
    server: dict[str, Any] = {}
    if "server" in list_parameters(ALGORITHMS[config.algorithm.type]):
        name = next(n for n, kind in SERVER_OPTIMIZERS.items() if isinstance(algorithm.server, kind))
        server = {"type": name, **dataclasses.asdict(algorithm.server)}
    frozen = [t for t in getattr(algorithm, "frozen", Layers.none()).terms if t not in config.model.freeze]
    model = dataclasses.replace(config.model, freeze=(*config.model.freeze, *frozen))
    return dataclasses.replace(config, solver=solver, server=server, model=model)


def build_channel(config: RunConfig) -> Channel:
    """The codecs of both ways. Weights cannot bear all of them, and weights are what goes down."""
    up, down = (
        CodecChain(tuple(instantiate(look_up(CODECS, c.type, "codec"), c.options, f"codec {c.type}") for c in choices))
        for choices in (config.codec.up, config.codec.down)
    )
    if down.for_updates:
        raise ConfigError(
            f"codec: {down.for_updates[0]} takes away what an update can bear to lose and weights, which go down, cannot; "
            f"say which way each codec is for: codec: {{up: [{down.for_updates[0]}], down: [float16]}}"
        )
    if up.for_updates and config.algorithm.options.get("sends") == "weights":
        raise ConfigError(
            f"codec: {up.for_updates[0]} cannot code weights, and algorithm.sends is weights; set algorithm.sends=updates."
        )
    return Channel(up, down, Seed(config.seed).derive("codec"))


def build_secure(config: RunConfig, algorithm: Algorithm) -> SecureSum | None:
    """What stands in for the server's sums, if anything does; what it could not hide is refused here."""
    maker = look_up(SECURE, config.secure.type, "secure.type")
    chain = build_channel(config).up
    secure: SecureSum | None = instantiate(maker, config.secure.options, "secure", {"codecs": chain})
    if secure is None:
        return None
    loud = [name for name, reveals in all_client_methods(algorithm).items() if reveals == "each"]
    if loud:
        raise PrivacyError(
            f"{algorithm.name} reads single clients' replies ({', '.join(loud)}), and secure.type={config.secure.type} "
            "reveals only sums; choose another algorithm, or secure.type=none."
        )
    if bent := [codec.name for codec in chain.codecs if not codec.additive]:
        raise PrivacyError(
            f"codec {bent[0]} is not additive, so that masks over it would not cancel under secure.type={config.secure.type}; "
            "leave it out (masked numbers take 32 bits as they are), or set secure.type=none."
        )
    fewest, asked = (
        secure.demands.minimum,
        {"cohort.size": config.cohort.size, "evaluation.clients": config.evaluation.clients},
    )
    for where, count in asked.items():
        if count is not None and count < fewest:
            raise ConfigError(
                f"{where} is {count}, and a secure sum is over at least {fewest} clients (secure.minimum)."
            )
    return secure


def build_privacy(config: RunConfig, algorithm: Algorithm) -> PrivateSum | None:
    """The noise that stands between clients and the server, if there is to be any."""
    maker = look_up(PRIVACY, config.privacy.type, "privacy.type")
    private: PrivateSum | None = instantiate(maker, config.privacy.options, "privacy")
    if private is not None and (
        loud := [name for name, reveals in all_client_methods(algorithm).items() if reveals == "each"]
    ):
        raise PrivacyError(
            f"{algorithm.name} reads single clients' replies ({', '.join(loud)}), and privacy.type={config.privacy.type} "
            "adds noise to sums; choose another algorithm, or privacy.type=none."
        )
    if private is not None and getattr(algorithm, "sends_weights_first", False):
        raise PrivacyError(
            f"{algorithm.name} weighs clients by their losses, and under privacy.type={config.privacy.type} all count alike; "
            "set algorithm.weighting=equal, or privacy.type=none."
        )
    if private is not None:
        private.check_under(config.secure.type != "none", "secure.type is none")
    return private


def build_executor(configs: Sequence[RunConfig], federations: list[Federation], scratch: PrefixCache) -> Executor:
    """Where the clients' jobs of a run and its baselines are done: one process a core on CPU, this process on a GPU; with
    Ray its actors."""
    config = configs[0]
    look_up(TRANSPORTS, config.transport.type, "transport.type")
    if config.transport.type == "ray":
        from motet.experiment.deploy.ray_executor import RayOptions, ray_executor

        here = make_executor(device_of(config.device), InProcessOptions(0), federations, scratch)
        return ray_executor(instantiate(RayOptions, config.transport.options, "transport"), here, configs)
    if (
        config.transport.type != "in_process"
    ):  # clients train elsewhere; processes may not be forked beside a network's threads
        return make_executor(device_of(config.device), InProcessOptions(0), federations, scratch)
    options = instantiate(InProcessOptions, config.transport.options, "transport")
    return make_executor(device_of(config.device), options, federations, scratch)


def make_executor(
    device: torch.device, options: InProcessOptions, federations: list[Federation], scratch: PrefixCache
) -> Executor:
    readings = [reading for federation in federations for reading in federation.readings]
    for model, features in readings:
        if device.type == "cpu":
            scratch.prepare(model, features)
        else:
            model.move(device)
    if device.type != "cpu":
        return PackedExecutor(device, options.width, options.precision != "float32", options.record)
    count = default_worker_count() if options.workers is None else options.workers
    if count == 0:
        return SerialExecutor(device, scratch)
    models, read = {m.key: m for m, _ in readings}, {f.key: f for _, f in readings}
    return ProcessExecutor(count, models, read, scratch)


def device_of(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device is '{name}'; expected auto, cpu, cuda or cuda:0.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is '{name}', but PyTorch sees no GPU here; use device=cpu or device=auto.")
    return device
