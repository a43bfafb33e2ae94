"""Everybody has the same: shuffled, cut into equal pieces."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Partition, Shares, check_clients


def uniform(corpus: Corpus, seed: Seed, clients: int = 10) -> Partition:
    """Examples at random, the same number for each client."""
    check_clients(clients, corpus.train)

    def dealt(first: int, last: int, purpose: str) -> Shares:
        rows = first + seed.derive("uniform", purpose).numpy().permutation(last - first)
        return Shares.of(np.array_split(rows, clients))

    train, test = dealt(0, corpus.train, "train"), dealt(corpus.train, len(corpus), "test")
    return Partition(train, test, {"type": "uniform", "clients": clients, "seed": seed.root})
