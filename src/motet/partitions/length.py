"""Length skew: some clients write short texts, others long ones."""

from __future__ import annotations

import itertools

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.traits import Trait

LENGTH_COLUMN = {"tagging": "words", "qa": "context", "seq2seq": "source"}  # other tasks: text


def length(corpus: Corpus, seed: Seed, clients: int = 10, alpha: float = 1.0, levels: int = 5) -> Partition:
    """Sort texts into length levels, and draw each client's levels from a Dirichlet."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = length_trait(corpus, levels).require_variety(corpus, "the length of texts")
    train, test = dirichlet_split(corpus, seed.derive("length"), trait, clients, alpha)
    recipe = {"type": "length", "clients": clients, "alpha": alpha, **trait.settings, "seed": seed.root}
    return Partition(train, test, recipe, trait=trait)


def length_trait(corpus: Corpus, levels: int = 5) -> Trait:
    """Return the quantile of each row's number of words; ties may make the levels unequal."""
    if levels < 2:
        raise ConfigError(f"partition.levels is {levels}; it must be at least 2 (short and long).")
    column = corpus.column(LENGTH_COLUMN.get(corpus.task, "text"))
    words = np.fromiter((len(v.split()) if isinstance(v, str) else len(v) for v in column), np.int64, count=len(column))
    cuts = np.unique(np.quantile(words[: corpus.num_train], np.linspace(0, 1, levels + 1)[1:-1], method="lower"))
    cuts = cuts[cuts < words[: corpus.num_train].max()]
    edges = [0, *(int(c) for c in cuts), int(words.max())]
    width = len(str(edges[-1]))
    names = [f"{a + (k > 0):0{width}d} to {b:0{width}d} words" for k, (a, b) in enumerate(itertools.pairwise(edges))]
    return Trait(np.array(names), np.searchsorted(cuts, words, side="left"), {"by": "length", "levels": len(names)})
