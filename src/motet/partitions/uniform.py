"""Everybody has the same: shuffled, cut into equal pieces."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients


def uniform(corpus: Corpus, seed: Seed, clients: int = 10) -> Partition:
    """Examples at random, the same number for each client."""
    check_clients(clients, corpus.num_train)

    def dealt(first: int, last: int, purpose: str) -> ClientRows:
        rows = first + seed.derive("uniform", purpose).numpy().permutation(last - first)
        return ClientRows.from_lists(np.array_split(rows, clients))

    train, test = dealt(0, corpus.num_train, "train"), dealt(corpus.num_train, len(corpus), "test")
    return Partition(train, test, {"type": "uniform", "clients": clients, "seed": seed.root})
