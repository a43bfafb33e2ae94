"""Partitions from the command line: make one, look at one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.load_corpus import BUILTIN_CORPORA, DataConfig, load_corpus
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.recipe.config_parsing import instantiate, look_up
from motet.experiment.recipe.recipe_files import parse_overrides
from motet.experiment.recipe.run_config import ComponentConfig
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

SECTIONS = ("data", "task", "partition")
LAYOUTS = ("motet", "fednlp")
SEED = Seed(0, ("measures",))  # whatever a run's seed: two partitions are measured alike


@dataclasses.dataclass(frozen=True)
class CorpusSource:
    """Where a corpus is, as the command line says it."""

    corpus: str
    path: Path | None
    settings: Mapping[str, Any]
    seed: int

    @staticmethod
    def of(corpus: str, path: Path | None, settings: Sequence[str], seed: int) -> CorpusSource:
        given = parse_overrides(settings)
        if odd := next((section for section in given if section not in SECTIONS), None):
            raise ConfigError(
                f"'{odd}' has no part in dividing a corpus; {', '.join(f'{s}.…' for s in SECTIONS)} have."
            )
        return CorpusSource(corpus, path, given, seed)

    @property
    def where(self) -> dict[str, Any]:
        """Enough to read the corpus again."""
        known = self.corpus in BUILTIN_CORPORA or self.corpus in CORPUS_READERS
        named = {"name": self.corpus} if known or not Path(self.corpus).exists() else {"path": self.corpus}
        placed = {} if self.path is None else {"path": str(self.path)}
        task = self.settings.get("task", {}).get("type")
        return {"data": {**self.settings.get("data", {}), **named, **placed}, "task": task, "seed": self.seed}

    def load(self) -> Corpus:
        return corpus_at(self.where)


def corpus_at(where: Mapping[str, Any]) -> Corpus:
    return load_corpus(instantiate(DataConfig, where["data"], "data"), Seed(int(where["seed"])), where.get("task"))


def make_partition(source: CorpusSource, choice: ComponentConfig, to: Path | None, layout: str) -> tuple[Path, str]:
    """Divide a corpus as a run with the same seed would, and keep it in a file; where, and what it is in a sentence."""
    look_up(dict.fromkeys(LAYOUTS), layout, "--layout")
    corpus = source.load()
    made = build_partition(choice, corpus, Seed(source.seed))
    path = to or Path("partitions") / f"{corpus.name}-{choice.type}.h5"
    if path.suffix not in (".h5", ".hdf5"):
        raise ConfigError(f"--to: '{path.name}' should end in .h5, so that it is known for what it is.")
    if layout == "fednlp":
        name = write_fednlp_partition(made, path)
        return path, f"{path}: {name}, {describe_partition(made, corpus)}"
    write_partition(made, corpus, path, source.where)
    return path, f"{path}: {describe_partition(made, corpus)}"


def describe_partition(partition: Partition, corpus: Corpus) -> str:
    sizes = partition.train.sizes
    open_ = "" if partition.public is None else f", {len(partition.public):,} rows public"
    rows = len(partition.train.rows)
    return (
        f"{len(partition):,} clients with {sizes.min():,} to {sizes.max():,} of {rows:,} training rows of {corpus.name}{open_}"
        f"; digest {partition.digest}"
    )


def open_partition(path: Path, name: str | None, source: CorpusSource | None) -> tuple[Partition, Corpus]:
    """A partition file and the corpus it divides, which is where the file says or where the person does."""
    if is_fednlp_partition_file(path):
        if source is None:
            raise ConfigError(
                f"'{path}' is FedNLP's and does not say which corpus it divides; add --corpus (its data file)."
            )
        corpus = source.load()
        return read_fednlp_partition(path, name, corpus), corpus
    made, of = read_partition(path)
    if source is None and not of["where"]:
        raise ConfigError(f"'{path}' does not say where its corpus {of['name']} is; add --corpus.")
    corpus = corpus_at(of["where"]) if source is None else source.load()
    check_corpus(of, corpus, path)
    return made, corpus


def find_label_trait(corpus: Corpus) -> Trait | None:
    """What stands for labels in this corpus, if anything does."""
    try:
        return label_trait(corpus)
    except ConfigError:
        return None


def partition_facts(partition: Partition, corpus: Corpus) -> dict[str, float]:
    """How uneven a partition is, for a run's own record."""
    return measure_partition(partition, corpus, find_label_trait(corpus), SEED).plain()


def measure_against_random(partition: Partition, corpus: Corpus) -> tuple[PartitionMeasures, PartitionMeasures]:
    """Of the partition, and of the same sizes dealt at random."""
    trait = find_label_trait(corpus)
    return measure_partition(partition, corpus, trait, SEED), measure_partition(
        partition, corpus, trait, SEED, at_random=True
    )
