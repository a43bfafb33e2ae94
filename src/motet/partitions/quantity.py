"""Quantity shift (FedNLP): clients have different numbers of examples, z ~ Dir(β); their labels follow the prior."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition, check_clients, check_positive

BETA_HINT = "1: very different sizes, 100: nearly equal"


def quantity(
    corpus: Corpus, seed: Seed, clients: int = 10, beta: float = 1.0, independent_test: bool = False
) -> Partition:
    """Clients have different numbers of examples, drawn from a Dirichlet; small beta, very different."""
    check_clients(clients, corpus.num_train)
    check_positive("beta", beta, BETA_HINT)
    z = sample_size_shares(beta, clients, corpus.num_train, seed.derive("quantity", "sizes").numpy())
    z_test = (
        sample_size_shares(beta, clients, corpus.num_train, seed.derive("quantity", "test sizes").numpy())
        if independent_test
        else z
    )

    def dealt(first: int, last: int, purpose: str, z: np.ndarray) -> ClientRows:
        rows = first + seed.derive("quantity", purpose).numpy().permutation(last - first)
        return ClientRows.from_sizes(rows, sizes_from_shares(z, last - first))

    train, test = dealt(0, corpus.num_train, "train", z), dealt(corpus.num_train, len(corpus), "test", z_test)
    made = {"clients": clients, "beta": beta, "independent_test": independent_test}
    return Partition(train, test, {"type": "quantity", **made, "seed": seed.root})


def sizes_from_shares(z: np.ndarray, examples: int) -> np.ndarray:
    """Sizes that sum to the number of examples, by cutting at ⌊cumsum(z)·n⌋. Where there are enough, nobody has none."""
    ends = np.floor(np.cumsum(z) * examples + 1e-9).astype(np.int64)
    ends[-1] = examples
    sizes = np.diff(np.concatenate([[0], ends]))
    empty = np.flatnonzero(sizes == 0) if examples >= len(z) else np.zeros(0, np.int64)
    sizes[empty] = 1
    while (over := int(sizes.sum()) - examples) > 0:  # the largest give one each, until all is even again
        largest = np.argsort(-sizes, kind="stable")[:over]
        sizes[largest[sizes[largest] > 1]] -= 1
    return sizes


def sample_size_shares(beta: float, clients: int, examples: int, rng: np.random.Generator) -> np.ndarray:
    """As the paper has it, drawn until everybody has an example; if that does not come about, the largest give one away."""
    for _ in range(100):
        z = rng.dirichlet(np.full(clients, beta))
        if np.isfinite(z).all() and (np.diff(np.floor(np.cumsum(z) * examples), prepend=0) >= 1).all():
            return z
    return z if np.isfinite(z).all() else np.full(clients, 1 / clients)
