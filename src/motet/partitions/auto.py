"""The partition of a recipe that names none: the clients of the corpus, if it has them."""

from __future__ import annotations

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.natural import natural
from motet.partitions.partition import Partition
from motet.partitions.uniform import uniform


def auto(
    corpus: Corpus,
    seed: Seed,
    clients: int | None = None,
    column: str | None = None,
    min_examples: int | None = None,
) -> Partition:
    """Use the clients of the corpus (natural). Without them, or if a number of clients is given, divide uniformly."""
    has_clients = clients is None and "client" in corpus.columns
    if has_clients or column is not None or min_examples is not None:
        return natural(corpus, seed, column or "client", min_examples)
    return uniform(corpus, seed) if clients is None else uniform(corpus, seed, clients)
