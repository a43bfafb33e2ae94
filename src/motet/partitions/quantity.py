"""Quantity skew (FedNLP): client sizes follow z ~ Dir(β); labels follow the prior."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients, check_positive

BETA_HINT = "1: very different sizes, 100: nearly equal"


def quantity(
    corpus: Corpus, seed: Seed, clients: int = 10, beta: float = 1.0, independent_test: bool = False
) -> Partition:
    """Draw the size of each client from a Dirichlet distribution; smaller beta is more skewed (FedNLP)."""
    check_clients(clients, corpus.num_train)
    check_positive("beta", beta, BETA_HINT)
    shares = sample_size_shares(beta, clients, corpus.num_train, seed.derive("quantity", "sizes").numpy())
    test_shares = shares
    if independent_test:
        rng = seed.derive("quantity", "test sizes").numpy()
        test_shares = sample_size_shares(beta, clients, corpus.num_train, rng)

    def split(start: int, stop: int, purpose: str, shares: np.ndarray) -> ClientRows:
        rows = start + seed.derive("quantity", purpose).numpy().permutation(stop - start)
        return ClientRows.from_sizes(rows, sizes_from_shares(shares, stop - start))

    train = split(0, corpus.num_train, "train", shares)
    test = split(corpus.num_train, len(corpus), "test", test_shares)
    options = {"clients": clients, "beta": beta, "independent_test": independent_test}
    return Partition(train, test, {"type": "quantity", **options, "seed": seed.root})


def sizes_from_shares(shares: np.ndarray, examples: int) -> np.ndarray:
    """Return sizes ⌊cumsum(shares)·n⌋ that sum to n. If there are enough examples, every client gets at least one."""
    ends = np.floor(np.cumsum(shares) * examples + 1e-9).astype(np.int64)
    ends[-1] = examples
    sizes = np.diff(np.concatenate([[0], ends]))
    empty = np.flatnonzero(sizes == 0) if examples >= len(shares) else np.zeros(0, np.int64)
    sizes[empty] = 1
    while (excess := int(sizes.sum()) - examples) > 0:  # the largest clients give one example each
        largest = np.argsort(-sizes, kind="stable")[:excess]
        sizes[largest[sizes[largest] > 1]] -= 1
    return sizes


def sample_size_shares(beta: float, clients: int, examples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw shares until every client has an example, as in the paper, at most 100 times."""
    for _ in range(100):
        shares = rng.dirichlet(np.full(clients, beta))
        if np.isfinite(shares).all() and (np.diff(np.floor(np.cumsum(shares) * examples), prepend=0) >= 1).all():
            return shares
    return shares if np.isfinite(shares).all() else np.full(clients, 1 / clients)
