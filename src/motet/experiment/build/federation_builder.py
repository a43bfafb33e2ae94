"""Build a federation from a run's configuration: load corpora, divide them over clients, tokenize, load models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from motet.core.attributes import require_parent
from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.check_corpus import ShowInspection, check_corpus
from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.datasets.task_columns import required_columns
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.data_poisoning import build_attack, poison_federation
from motet.experiment.build.feature_cache import load_features
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.group_builder import build_group
from motet.experiment.build.partition_cache import load_partition
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import ComponentConfig, GroupConfig, RunConfig
from motet.learning.data.features import Features
from motet.learning.modules.model import Model
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig
from motet.partitions import Partition
from motet.partitions.dev_split import hold_out_dev
from motet.partitions.public_split import hold_out_public
from motet.partitions.traits import TEXT_COLUMNS
from motet.report.profiler import span
from motet.tasks import TASK_REGISTRY, Task

CorpusLoader = Callable[[DataConfig, Seed, str | None], Corpus]
# Runs that agree in these settings share a federation.
FEDERATION_KEYS = ("seed", "data", "model", "partition", "task", "groups", "attack")


@dataclass(frozen=True, eq=False)
class Population:
    """A corpus with its task, divided over clients. Clients of several groups, with different models, may share one."""

    corpus: Corpus
    task: Task
    partition: Partition
    inspection: CorpusInspection | None = None


class GroupSpec(NamedTuple):
    """What a group is built from."""

    name: str
    population: Population
    clients: ClientRange
    model: ModelConfig


def build_federations(configs: Mapping[str, RunConfig]) -> dict[str, Federation]:
    """Build the federation of each run. Runs on the same data share one, so that texts are tokenized once."""
    by_key: dict[str, Federation] = {}
    federations = {}
    for name, config in configs.items():
        key = federation_key(config)
        if key not in by_key:
            with span("build the federation", "data"):
                by_key[key] = build_federation(config)
        federations[name] = by_key[key]
    return federations


def federation_key(config: RunConfig) -> str:
    """Return a key that is equal for runs that can share a federation."""
    return json.dumps({k: v for k, v in config.to_dict().items() if k in FEDERATION_KEYS}, sort_keys=True)


def build_federation(
    config: RunConfig, load: CorpusLoader = load_corpus, on_inspection: ShowInspection | None = None
) -> Federation:
    """Build the federation of a run. Groups with the same data, task and partition divide its clients in order.

    `on_inspection` is called with the inspection of each corpus.
    """
    seed, groups = Seed(config.seed), config.client_groups
    for group in groups:
        if group.task.type != "auto":
            TASK_REGISTRY.get(group.task.type, "task.type")
    by_source: dict[str, list[GroupConfig]] = {}
    for group in groups:
        by_source.setdefault(_source_key(group), []).append(group)
    populations = {key: _build_population(members, seed, load, on_inspection) for key, members in by_source.items()}
    names = _name_groups(groups, populations)
    ranges = _assign_clients(groups, names, populations)
    specs = [
        GroupSpec(name, populations[_source_key(group)], clients, group.model)
        for group, name, clients in zip(groups, names, ranges, strict=True)
    ]
    return poison_federation(_assemble(specs, config.model, seed), build_attack(config))


def federate_corpus(
    model: ModelConfig,
    corpus: Corpus,
    partition: ComponentConfig,
    seed: Seed,
    *,
    task: ComponentConfig = ComponentConfig("auto"),
    public_share: float = 0.0,
    dev_share: float = 0.0,
) -> Federation:
    """Divide one corpus over clients that all have the same model."""
    population = _divide(corpus, task, partition, seed, public_share=public_share, dev_share=dev_share)
    clients = ClientRange(names=population.partition.clients, start=0, stop=len(population.partition))
    return _assemble([GroupSpec(corpus.name, population, clients, model)], model, seed)


def _assemble(specs: Sequence[GroupSpec], server_model: ModelConfig, seed: Seed) -> Federation:
    """Build the groups. Each model is loaded once, and each corpus is tokenized once for each tokenizer."""
    corpora = list({id(spec.population.corpus): spec.population.corpus for spec in specs}.values())
    models: dict[tuple[str, ...], Model] = {}
    features: dict[tuple[int, str], Features] = {}

    def build(spec: GroupSpec) -> ClientGroup:
        population, task = spec.population, spec.population.task
        model_key = (repr(spec.model), task.head, *task.labels)
        if model_key not in models:  # one vocabulary for all corpora: averaged embeddings must be of the same words
            texts = partial(chain.from_iterable, map(vocabulary_texts, corpora))
            with span(f"load the model {spec.model.name}", "model"):
                models[model_key] = load_model(spec.model, task.head, task.labels, texts, seed)
        model = models[model_key]
        features_key = (id(population), model.key)
        if features_key not in features:
            with span(f"tokenize {population.corpus.name}", "data", examples=len(population.corpus)):
                features[features_key] = load_features(task, population.corpus, model, spec.model.max_tokens)
        return build_group(
            name=spec.name,
            task=task,
            model=model,
            corpus=population.corpus,
            features=features[features_key],
            partition=population.partition,
            max_tokens=spec.model.max_tokens,
            clients=spec.clients,
            inspection=population.inspection,
        )

    groups = tuple(build(spec) for spec in specs)
    first = specs[0].population
    everyone = ClientRange(names=first.partition.clients, start=0, stop=len(first.partition))
    return Federation(groups=groups, server=build(GroupSpec("server", first, everyone, server_model)), seed=seed)


def _source_key(group: GroupConfig) -> str:
    """Return a key that is equal for groups that divide the same population."""
    options = sorted((k, str(v)) for k, v in group.partition.options.items() if k != "clients")
    return repr((group.data, group.task, (group.partition.type, options)))


def _build_population(
    groups: Sequence[GroupConfig], seed: Seed, load: CorpusLoader, on_inspection: ShowInspection | None
) -> Population:
    """Load the corpus of groups with the same data, and divide it over all of their clients."""
    first = groups[0]
    with span("read the corpus", "data"):
        corpus = load(first.data, seed, first.task.chosen_type)
    with span("inspect the corpus", "data"):
        inspection = check_corpus(corpus, first.data, on_inspection=on_inspection)
    counts = [group.clients for group in groups]
    partition = first.partition
    if None not in counts:
        partition = ComponentConfig(partition.type, {**partition.options, "clients": sum(n or 0 for n in counts)})
    shares = {"public_share": first.data.public_share, "dev_share": first.data.dev_share}
    return replace(_divide(corpus, first.task, partition, seed, **shares), inspection=inspection)


def _divide(
    corpus: Corpus,
    task: ComponentConfig,
    partition: ComponentConfig,
    seed: Seed,
    *,
    public_share: float,
    dev_share: float,
) -> Population:
    if len(corpus) == corpus.num_train:
        raise DataError(f"{corpus.name}: there are no test rows to evaluate on; set data.test or data.test_share.")
    with span("divide the corpus", "data"):
        divided = load_partition(partition, corpus, seed)
    if dev_share:
        divided = hold_out_dev(divided, dev_share, seed.derive("partition"))
        if divided.dev is not None and not len(divided.dev):
            raise ConfigError(
                f"data.dev_share is {dev_share:g}, but no client has more than one training row to put aside; "
                "divide the corpus over fewer clients, or leave data.dev_share out."
            )
    if public_share:
        divided = hold_out_public(divided, public_share, seed.derive("partition"))
    return Population(corpus=corpus, task=build_task(task, corpus), partition=divided)


def _name_groups(groups: Sequence[GroupConfig], populations: Mapping[str, Population]) -> list[str]:
    """Name each group after its corpus if there are several, else after its model; number duplicates."""
    names: list[str] = []
    for group in groups:
        corpus = populations[_source_key(group)].corpus.name
        name = group.name or (corpus if len(populations) > 1 or len(groups) == 1 else group.model.name)
        number = 1 + sum(other.partition("#")[0] == name for other in names)
        names.append(name if number == 1 else f"{name}#{number}")
    return names


def _assign_clients(
    groups: Sequence[GroupConfig], names: Sequence[str], populations: Mapping[str, Population]
) -> list[ClientRange]:
    """Return the clients of each group. The groups of a population get its clients in order."""
    ranges: dict[int, ClientRange] = {}
    for key, population in populations.items():
        members = [i for i, group in enumerate(groups) if _source_key(group) == key]
        prefix = f"{names[members[0]]}/" if len(populations) > 1 else ""
        start = 0
        for i, count in zip(members, _count_clients([groups[i] for i in members], population), strict=True):
            ranges[i] = ClientRange(names=population.partition.clients, start=start, stop=start + count, prefix=prefix)
            start += count
    return [ranges[i] for i in range(len(groups))]


def _count_clients(groups: Sequence[GroupConfig], population: Population) -> list[int]:
    """Return how many clients of a population each of its groups has; one group may take all that the others leave."""
    available, requested = len(population.partition), [group.clients for group in groups]
    rest = available - sum(n or 0 for n in requested)
    open_ended = requested.count(None)
    if (rest and not open_ended) or rest < open_ended or open_ended > 1:
        raise ConfigError(
            f"groups: {population.corpus.name} is divided over {available} clients ({groups[0].partition.type}), and its "
            f"groups ask for {', '.join('the rest' if n is None else str(n) for n in requested)}; "
            f"let their 'clients' sum to {available}, or leave it out in one of them."
        )
    return [rest if n is None else n for n in requested]


def build_task(config: ComponentConfig, corpus: Corpus) -> Task:
    """Build the task formulation that the recipe names, or for `auto` the one of the corpus."""
    name = config.chosen_type or corpus.task
    factory = TASK_REGISTRY.get(name, "task.type")
    if missing := ", ".join(column for column in required_columns(name) if column not in corpus.columns):
        raise ConfigError(f"task.type is {name}, but {corpus.name} is a corpus for {corpus.task}: it has no {missing}.")
    task: Task = instantiate(factory, config.options, "task", {"corpus": corpus})
    require_parent(task, Task, f"task.type={name}")
    return task


def vocabulary_texts(corpus: Corpus) -> Iterator[str]:
    """Yield all training texts, for models that build their vocabulary from them."""
    for name in TEXT_COLUMNS:
        for value in corpus.columns.get(name, ())[: corpus.num_train]:
            yield value if isinstance(value, str) else " ".join(value)
