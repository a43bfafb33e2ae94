"""Uniform partition: shuffle the rows and cut them into pieces of equal size."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients


def uniform(corpus: Corpus, seed: Seed, clients: int = 10) -> Partition:
    """Give every client the same number of random examples (IID)."""
    check_clients(clients, corpus.num_train)

    def split(start: int, stop: int, purpose: str) -> ClientRows:
        rows = start + seed.derive("uniform", purpose).numpy().permutation(stop - start)
        return ClientRows.from_lists(np.array_split(rows, clients))

    train, test = split(0, corpus.num_train, "train"), split(corpus.num_train, len(corpus), "test")
    return Partition(train, test, {"type": "uniform", "clients": clients, "seed": seed.root})
