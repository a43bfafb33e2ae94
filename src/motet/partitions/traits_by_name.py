"""Traits by name, for the option `by` of partition strategies: a column of the corpus, or a property of its texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.feature import cluster_trait
from motet.partitions.language import language_trait, script_trait
from motet.partitions.length import length_trait
from motet.partitions.pseudo_labels import label_trait
from motet.partitions.traits import Trait
from motet.partitions.vocabulary import vocabulary_trait

TRAITS: dict[str, Callable[[Corpus, Seed], Trait]] = {
    "label": lambda corpus, seed: label_trait(corpus),
    "length": lambda corpus, seed: length_trait(corpus),
    "language": lambda corpus, seed: language_trait(corpus),
    "script": lambda corpus, seed: script_trait(corpus),
    "cluster": cluster_trait,
    "vocabulary": vocabulary_trait,
}


def get_trait(corpus: Corpus, by: str, seed: Seed) -> Trait:
    """Return the trait that `by` names, or raise if it has one category only, or nearly as many as there are rows."""
    if by in corpus.columns and by != "label":
        return _column_trait(corpus, by).require_variety(corpus, f"column '{by}'")
    if by not in TRAITS:
        known = ", ".join(dict.fromkeys([*TRAITS, *corpus.columns]))
        raise ConfigError(f"partition.by is '{by}'; {corpus.name} has no such column. Choose one of {known}.")
    return TRAITS[by](corpus, seed.derive("trait")).require_variety(corpus, f"'{by}'")


def _column_trait(corpus: Corpus, name: str) -> Trait:
    categories, codes = corpus.factorize(name)
    count = len(np.unique(codes[: corpus.num_train]))
    if count > max(50, corpus.num_train // 4):
        raise ConfigError(
            f"partition.by: column '{name}' of {corpus.name} has {count:,} distinct values in {corpus.num_train:,} "
            "training rows, too many to mix. Name a column with fewer, or make each value a client with "
            "partition.type=natural."
        )
    return Trait(categories, codes, {"by": name})
