"""Traits by name, for every partition that takes `by`: a column of the corpus, or something that is read off its texts."""

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
    """A trait that has more than one kind, and fewer than there are rows."""
    if by in corpus.columns and by != "label":
        return _column(corpus, by).require_variety(corpus, f"column '{by}'")
    if by not in TRAITS:
        known = ", ".join(dict.fromkeys([*TRAITS, *corpus.columns]))
        raise ConfigError(f"partition.by is '{by}'; {corpus.name} has no such column. There is {known}.")
    return TRAITS[by](corpus, seed.derive("trait")).require_variety(corpus, f"'{by}'")


def _column(corpus: Corpus, name: str) -> Trait:
    names, codes = corpus.factorize(name)
    kinds = len(np.unique(codes[: corpus.num_train]))
    if kinds > max(50, corpus.num_train // 4):
        raise ConfigError(
            f"partition.by: column '{name}' of {corpus.name} has {kinds:,} different values in {corpus.num_train:,} training rows, "
            "which are no kinds to be mixed; name a column with fewer, or make each value a client with partition.type=natural."
        )
    return Trait(names, codes, {"by": name})
