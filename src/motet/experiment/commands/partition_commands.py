"""`motet partition make` and `motet partition show`: write partition files, read them, and measure partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import load_corpus, require_corpus
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.commands.corpus_commands import require_hdf5_name
from motet.experiment.recipe.config_parsing import look_up
from motet.experiment.recipe.corpus_source import CorpusSource, parse_sections
from motet.experiment.recipe.recipe_files import (
    RECIPE_SUFFIXES,
    build_recipe,
    list_recipes,
    merge_settings,
    parse_overrides,
)
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.partitions import Partition
from motet.partitions.fednlp_partition_file import (
    is_fednlp_partition_file,
    read_fednlp_partition,
    write_fednlp_partition,
)
from motet.partitions.measures import PartitionMeasures, measure_partition
from motet.partitions.partition_file import check_corpus, read_partition, write_partition
from motet.partitions.pseudo_labels import label_trait
from motet.partitions.traits import Trait
from motet.report.number_text import format_range

LAYOUTS = ("motet", "fednlp")
MEASURES_SEED = Seed(0, ("measures",))  # the same for all runs, so that their partitions are comparable


def parse_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse the settings of a corpus and of its partition."""
    return parse_sections(overrides, ("data", "task", "partition"), "has no effect on a partition")


def make_partition(
    source: CorpusSource, partition_config: ComponentConfig, to: Path | None, layout: str
) -> tuple[Path, str]:
    """Divide a corpus as a run with the same seed would, and write a file. Return its path and a description."""
    look_up(dict.fromkeys(LAYOUTS), layout, "--layout")
    if to is not None:
        require_hdf5_name(to)
    corpus = source.load()
    partition = build_partition(partition_config, corpus, Seed(source.seed))
    path = to or Path("partitions") / f"{corpus.name}-{partition_config.type}.h5"
    description = describe_partition(partition, corpus)
    if layout == "fednlp":
        name = write_fednlp_partition(partition, path)
        return path, f"{path}: {name}, {description}"
    write_partition(partition, corpus, path, asdict(source))
    return path, f"{path}: {description}"


def describe_partition(partition: Partition, corpus: Corpus) -> str:
    sizes = partition.train.sizes
    rows = len(partition.train.rows)
    public = "" if partition.public is None else f", {len(partition.public):,} public rows"
    return (
        f"{len(partition):,} clients, each with {format_range(sizes)} of {rows:,} training rows of "
        f"{corpus.name}{public}; digest {partition.digest}"
    )


def open_partition(path: Path, name: str | None, source: CorpusSource | None) -> tuple[Partition, Corpus]:
    """Read a partition file and the corpus that it divides: `source`, or the one that the file names."""
    if is_fednlp_partition_file(path):
        if source is None:
            raise ConfigError(
                f"'{path}' is a FedNLP file, which does not name its corpus; add --corpus (its data file)."
            )
        corpus = source.load()
        return read_fednlp_partition(path, name, corpus), corpus
    partition, described = read_partition(path)
    if source is None and not described["where"]:
        raise ConfigError(f"'{path}' does not say where its corpus {described['name']} is; add --corpus.")
    corpus = (source or CorpusSource(**described["where"])).load()
    check_corpus(described, corpus, path)
    return partition, corpus


def read_division(data: str, path: Path | None, overrides: Sequence[str]) -> tuple[Partition, Corpus]:
    """Divide a corpus as a run would. `data` is a recipe, or a corpus whose partition the overrides name."""
    changes = parse_overrides(overrides)
    if Path(data).suffix in RECIPE_SUFFIXES or (data in list_recipes() and path is None):
        config = build_recipe(data, changes)
    elif "partition" in changes:
        source = CorpusSource.from_settings(data, path, changes)
        config = RunConfig.from_settings(data, merge_settings(changes, {"data": source.data}))
    else:
        if not Path(data).exists():
            require_corpus(data)
        raise ConfigError(
            f"the division of '{data}' over clients is missing; add e.g. partition.type=natural data.client=author, or "
            "partition.type=label partition.clients=20 partition.alpha=1."
        )
    if config.groups:
        raise ConfigError(f"'{data}' has groups with their own corpora; pass one corpus and its partition.")
    seed = Seed(config.seed)
    corpus = load_corpus(config.data, seed, config.task.chosen_type)
    return build_partition(config.partition, corpus, seed), corpus


def describe_division(partition: Partition, corpus: Corpus) -> dict[str, Any]:
    """Return a partition in numbers: clients, texts per client, and how uneven it is."""
    return {
        "task": corpus.task,
        "dataset": corpus.name,
        "clients": len(partition),
        "texts_per_client": len(partition.train.rows) / max(1, len(partition)),
        "measures": partition_facts(partition, corpus),
    }


def find_label_trait(corpus: Corpus) -> Trait | None:
    """Return the labels of a corpus, or what stands for them; None if there is nothing."""
    try:
        return label_trait(corpus)
    except ConfigError:
        return None


def partition_facts(partition: Partition, corpus: Corpus) -> dict[str, float]:
    """Measure how uneven a partition is, for the summary of a run."""
    return measure_partition(partition, corpus, find_label_trait(corpus), MEASURES_SEED).to_dict()


def measure_against_random(partition: Partition, corpus: Corpus) -> tuple[PartitionMeasures, PartitionMeasures]:
    """Measure a partition, and a random one with the same client sizes."""
    trait = find_label_trait(corpus)
    random = measure_partition(partition, corpus, trait, MEASURES_SEED, at_random=True)
    return measure_partition(partition, corpus, trait, MEASURES_SEED), random
