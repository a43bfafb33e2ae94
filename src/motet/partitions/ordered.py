"""Sorted cut: clients have consecutive pieces of the examples sorted by a number (Federated Split BERT on STS-B)."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients


def ordered(corpus: Corpus, seed: Seed, clients: int = 3, by: str = "score") -> Partition:
    """Sorted by a column of numbers and cut into equal pieces: the first client has the lowest scores, the last the highest."""
    check_clients(clients, corpus.num_train)
    try:
        numbers = np.asarray(corpus.column(by), np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"partition.by: column '{by}' of {corpus.name} holds no numbers; sorted needs a score."
        ) from None
    if len(np.unique(numbers[: corpus.num_train])) < 2:
        raise ConfigError(
            f"partition.by: column '{by}' has one value, {numbers[0]:g}, so there is nothing to sort; use uniform."
        )

    def cut(first: int, last: int, purpose: str) -> ClientRows:
        mixed = seed.derive("sorted", purpose).numpy().permutation(last - first)  # equal scores in random order
        rows = first + mixed[np.argsort(numbers[first:last][mixed], kind="stable")]
        return ClientRows.from_lists(np.array_split(rows, clients))

    train, test = cut(0, corpus.num_train, "train"), cut(corpus.num_train, len(corpus), "test")
    return Partition(train, test, {"type": "sorted", "clients": clients, "by": by, "seed": seed.root})
