"""A partition by the length of texts: each client has texts of similar length."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients


def by_length(corpus: Corpus, seed: Seed, clients: int = 10) -> Partition:
    """Sort the rows by the length of their texts, and give each client the same number of neighbors."""
    check_clients(clients, corpus.num_train)
    lengths = np.array([len(text.split()) for text in corpus.column("text")])

    def split(start: int, stop: int) -> ClientRows:
        shuffled = start + seed.derive("by_length", start).numpy().permutation(stop - start)  # breaks ties
        rows = shuffled[np.argsort(lengths[shuffled], kind="stable")]
        return ClientRows.from_lists(np.array_split(rows, clients))

    train, test = split(0, corpus.num_train), split(corpus.num_train, len(corpus))
    return Partition(train, test, {"type": "by_length", "clients": clients, "seed": seed.root})
