"""Quantity shift (FedNLP): clients have different numbers of examples, z ~ Dir(β); their labels follow the prior."""

from __future__ import annotations

import math

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Partition, Shares, check_clients


def quantity(corpus: Corpus, seed: Seed, clients: int = 10, beta: float = 1.0) -> Partition:
    """Clients have different numbers of examples, drawn from a Dirichlet; small beta, very different."""
    check_clients(clients, corpus.train)
    if not (beta > 0 and math.isfinite(beta)):
        raise ConfigError(f"partition.beta is {beta}; it must be above 0 (1: very different sizes, 100: nearly equal).")
    z = _sizes(beta, clients, corpus, seed.of("quantity", "sizes").numpy())

    def dealt(first: int, last: int, purpose: str) -> Shares:
        rows = first + seed.of("quantity", purpose).numpy().permutation(last - first)
        return Shares.cut(rows, cuts(z, last - first))

    train, test = dealt(0, corpus.train, "train"), dealt(corpus.train, len(corpus), "test")
    return Partition(train, test, {"type": "quantity", "clients": clients, "beta": beta, "seed": seed.root})


def cuts(z: np.ndarray, examples: int) -> np.ndarray:
    """Sizes that sum to the number of examples, by cutting at ⌊cumsum(z)·n⌋."""
    ends = np.floor(np.cumsum(z) * examples + 1e-9).astype(np.int64)
    ends[-1] = examples
    return np.diff(np.concatenate([[0], ends]))


def _sizes(beta: float, clients: int, corpus: Corpus, rng: np.random.Generator) -> np.ndarray:
    """Draw until everybody has an example to train on and, where there are enough, one to be tested on."""
    held = len(corpus) - corpus.train
    for _ in range(1000):
        z = rng.dirichlet(np.full(clients, beta))
        if np.isfinite(z).all() and cuts(z, corpus.train).min() >= 1 and (held < clients or cuts(z, held).min() >= 1):
            return z
    raise ConfigError(
        f"partition.beta is {beta}: in 1,000 draws no one gave all {clients} clients an example "
        f"of {corpus.train} for training and {held} for test; raise partition.beta or lower partition.clients."
    )
