"""Sorted partition: sort the examples by a number and cut them into pieces (Federated Split BERT on STS-B)."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients


def ordered(corpus: Corpus, seed: Seed, clients: int = 3, by: str = "score") -> Partition:
    """Sort examples by a numeric column (by) and cut: the first client gets the lowest values, the last the highest."""
    check_clients(clients, corpus.num_train)
    try:
        values = np.asarray(corpus.column(by), np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"partition.by: column '{by}' of {corpus.name} is not numeric; partition sorted needs a score."
        ) from None
    if len(np.unique(values[: corpus.num_train])) < 2:
        raise ConfigError(
            f"partition.by: column '{by}' has one value, {values[0]:g}, so there is nothing to sort. Use uniform."
        )

    def split(start: int, stop: int, purpose: str) -> ClientRows:
        shuffled = seed.derive("sorted", purpose).numpy().permutation(stop - start)  # random order of equal values
        rows = start + shuffled[np.argsort(values[start:stop][shuffled], kind="stable")]
        return ClientRows.from_lists(np.array_split(rows, clients))

    train, test = split(0, corpus.num_train, "train"), split(corpus.num_train, len(corpus), "test")
    return Partition(train, test, {"type": "sorted", "clients": clients, "by": by, "seed": seed.root})
