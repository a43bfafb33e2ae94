"""Put a run together from its description; whatever cannot work is found here, before anything trains."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from motet.algorithms import ALGORITHMS
from motet.codecs import CODECS
from motet.codecs.channel import Chain, Channel
from motet.core.errors import ConfigError, DataError, PrivacyError
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.script import offers
from motet.core.work import Bench
from motet.datasets.corpus import COLUMNS, Corpus
from motet.datasets.load import load_corpus
from motet.experiment.config import Choice, Config
from motet.experiment.features import cached_features
from motet.experiment.federation import Federation, arranged
from motet.experiment.options import choose, fill, options_of
from motet.learning.bench import Alone, Scratch
from motet.learning.solver import Solver
from motet.learning.workers import Workers, default_count
from motet.models.load import ModelChoice, load_model
from motet.optim import SERVER_OPTIMIZERS
from motet.partitions import PARTITIONS, Partition
from motet.tasks import TASKS, Task
from motet.transport.faulty import Faults

TRANSPORTS = {
    "in_process": "clients are simulated in this process, their work shared out over its cores or its GPU",
    "grpc": "clients are silos with their own data (motet serve, motet join); with motet run, processes of this machine",
    "mqtt": "the same over a broker (transport.broker=host:port), for clients that come and go; without one, one of our own",
    "mpi": "clients are shared out over the processes of a cluster: mpirun -n 5 motet run … --transport mpi",
    "ray": "clients are simulated here, their jobs done by Ray's actors (transport.address=… for a cluster), one a GPU or core",
}
SECURE = {"none": "sums are read by the server as they come"}


@dataclass(frozen=True)
class InProcessOptions:
    workers: int | None = None  # None: one a core; 0: no worker processes
    faults: Faults = Faults()  # messages that a simulation loses, repeats, shuffles, delays

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"transport.workers is {self.workers}; it is a number of processes, or 0 for none.")


def build_federation(config: Config) -> Federation:
    seed = Seed(config.seed)
    corpus = load_corpus(config.data, seed, None if config.task.type == "auto" else config.task.type)
    return make_federation(config.model, corpus, config.partition, seed, config.task)


def make_federation(
    model: ModelChoice, corpus: Corpus, partition: Choice, seed: Seed, task_choice: Choice = Choice("auto")
) -> Federation:
    if len(corpus) == corpus.train:
        raise DataError(f"{corpus.name}: there are no test rows, so nothing could be judged; set data.test or data.test_share.")
    task = build_task(task_choice, corpus)
    loaded = load_model(model, task.name, task.labels, lambda: vocabulary_texts(corpus), seed)
    features = cached_features(task, corpus, loaded, model.max_tokens)
    return arranged(task, loaded, corpus, features, divided(partition, corpus, seed), seed, model.max_tokens)


def build_task(choice: Choice, corpus: Corpus) -> Task:
    """The formulation that the recipe names, or the one the corpus is for."""
    name = corpus.task if choice.type == "auto" else choice.type
    maker = choose(TASKS, name, "task.type")
    if COLUMNS[name] != COLUMNS[corpus.task]:
        needs = ", ".join(c for c in COLUMNS[name] if c not in corpus.columns)
        if needs:
            raise ConfigError(f"task.type is {name}, but {corpus.name} is a corpus for {corpus.task}: it has no {needs}.")
    return fill(maker, choice.options, "task", {"corpus": corpus})


def vocabulary_texts(corpus: Corpus) -> Iterator[str]:
    """All training texts, for models that make their vocabulary from them."""
    for name in ("text", "second", "words", "context", "question", "source", "target"):
        for value in corpus.columns.get(name, ())[: corpus.train]:
            yield value if isinstance(value, str) else " ".join(value)


def divided(choice: Choice, corpus: Corpus, seed: Seed) -> Partition:
    maker = choose(PARTITIONS, choice.type, "partition.type")
    fixed = {"corpus": corpus, "seed": seed.of("partition")}
    wanted = {k: v for k, v in choice.options.items() if k != "clients" or "clients" in options_of(maker)}
    return fill(maker, wanted, f"partition {choice.type}", fixed)


def build_algorithm(config: Config) -> Algorithm:
    """The algorithm with its own defaults, changed where the recipe says so."""
    name = config.algorithm.type
    maker = choose(ALGORITHMS, name, "algorithm.type")
    taken = options_of(maker)
    fixed: dict[str, Any] = {"solver": solver_of(config, taken["solver"])}
    if "server" in taken:
        fixed["server"] = _server(config, taken["server"])
    elif config.server:
        raise ConfigError(f"{name} has no server optimiser, so server.{next(iter(config.server))} means nothing; remove it.")
    return fill(maker, config.algorithm.options, name, fixed)


def solver_of(config: Config, parameter: inspect.Parameter) -> Solver:
    default = parameter.default
    kept = dataclasses.asdict(default)
    given = dict(config.solver)
    if "optimizer" in given and given["optimizer"] != default.optimizer and "lr" not in given:
        kept["lr"] = None
    return fill(Solver, {**kept, **given}, "solver")


def _server(config: Config, parameter: inspect.Parameter) -> Any:
    default: Any = parameter.default
    given = dict(config.server)
    name = given.pop("type", None)
    kind = type(default) if name is None else choose(SERVER_OPTIMIZERS, name, "server.type")
    kept: dict[str, Any] = {**vars(default)} if kind is type(default) else {}
    return fill(kind, {**kept, **given}, "server")


def resolved(config: Config) -> Config:
    """The same run with nothing left to an algorithm's own defaults."""
    algorithm: Any = build_algorithm(config)
    solver = {**dataclasses.asdict(algorithm.solver), "lr": algorithm.solver.rate}
    del solver["pull"]  # the algorithm's to set
    server: dict[str, Any] = {}
    if "server" in options_of(ALGORITHMS[config.algorithm.type]):
        name = next(n for n, kind in SERVER_OPTIMIZERS.items() if isinstance(algorithm.server, kind))
        server = {"type": name, **dataclasses.asdict(algorithm.server)}
    return dataclasses.replace(config, solver=solver, server=server)


def build_channel(config: Config) -> Channel:
    chain = Chain(tuple(choose(CODECS, name, "codec")() for name in config.codec))
    return Channel(up=chain, down=chain)


def check_privacy(config: Config, algorithm: Algorithm) -> None:
    choose(SECURE, config.secure.type, "secure.type")
    if config.secure.type != "none":
        loud = [name for name, reveals in offers(algorithm).items() if reveals == "each"]
        if loud:
            raise PrivacyError(
                f"{algorithm.name} reads single clients' replies ({', '.join(loud)}), and secure.type={config.secure.type} "
                "reveals only sums; choose another algorithm, or secure.type=none."
            )


def build_bench(configs: Sequence[Config], federations: list[Federation], scratch: Scratch) -> Bench:
    """Where the clients' jobs of a run and its baselines are done: one process a core on CPU, this process on a GPU; with
    Ray its actors."""
    config = configs[0]
    choose(TRANSPORTS, config.transport.type, "transport.type")
    if config.transport.type == "ray":
        from motet.experiment.actors import RayOptions, ray_bench

        here = make_bench(device_of(config.device), 0, federations, scratch)
        return ray_bench(fill(RayOptions, config.transport.options, "transport"), here, configs)
    if config.transport.type != "in_process":  # clients train elsewhere; processes may not be forked beside a network's threads
        return make_bench(device_of(config.device), 0, federations, scratch)
    options = fill(InProcessOptions, config.transport.options, "transport")
    return make_bench(device_of(config.device), options.workers, federations, scratch)


def make_bench(device: torch.device, workers: int | None, federations: list[Federation], scratch: Scratch) -> Bench:
    for federation in federations:
        if device.type == "cpu":
            scratch.prepare(federation.model, federation.features)
    count = default_count() if workers is None else workers
    if device.type != "cpu" or count == 0:
        return Alone(device, scratch)
    models = {f.model.key: f.model for f in federations}
    features = {f.features.key: f.features for f in federations}
    return Workers(count, models, features, scratch)


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
