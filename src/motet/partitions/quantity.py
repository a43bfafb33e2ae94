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
    z = _shares(beta, clients, corpus, seed.of("quantity", "sizes").numpy())

    def dealt(first: int, last: int, purpose: str) -> Shares:
        rows = first + seed.of("quantity", purpose).numpy().permutation(last - first)
        return Shares.cut(rows, cuts(z, last - first))

    train, test = dealt(0, corpus.train, "train"), dealt(corpus.train, len(corpus), "test")
    return Partition(train, test, {"type": "quantity", "clients": clients, "beta": beta, "seed": seed.root})


def cuts(z: np.ndarray, examples: int) -> np.ndarray:
    """Sizes that sum to the number of examples, by cutting at ⌊cumsum(z)·n⌋. Where there are enough, nobody has none."""
    ends = np.floor(np.cumsum(z) * examples + 1e-9).astype(np.int64)
    ends[-1] = examples
    sizes = np.diff(np.concatenate([[0], ends]))
    for empty in np.flatnonzero(sizes == 0) if examples >= len(z) else ():
        sizes[int(sizes.argmax())] -= 1
        sizes[empty] = 1
    return sizes


def _shares(beta: float, clients: int, corpus: Corpus, rng: np.random.Generator) -> np.ndarray:
    """As the paper has it, drawn until everybody has an example; if that does not come about, the largest give one away."""
    for _ in range(100):
        z = rng.dirichlet(np.full(clients, beta))
        if np.isfinite(z).all() and (np.diff(np.floor(np.cumsum(z) * corpus.train), prepend=0) >= 1).all():
            return z
    return z if np.isfinite(z).all() else np.full(clients, 1 / clients)
