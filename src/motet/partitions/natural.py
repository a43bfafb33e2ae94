"""Natural clients: whoever the data say. One client for each value of a column: author, domain, sub-dataset, mailbox."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Named, Partition, Shares


def natural(corpus: Corpus, seed: Seed, column: str = "client") -> Partition:
    """One client for each value of a column (author, domain, mailbox)."""
    every, codes = corpus.codes(column)
    present, ids = np.unique(codes[: corpus.train], return_inverse=True)
    names = every[present]
    if len(names) < 2:
        raise ConfigError(f"partition.column: '{column}' has one value, '{names[0]}'; a federation needs two clients or more.")
    place = np.full(len(every), -1, np.int64)
    place[present] = np.arange(len(present))
    test_ids = place[codes[corpus.train :]]
    train = _by_client(ids, len(names))
    known = np.flatnonzero(test_ids >= 0)  # a test row of somebody who has no training row is only in the global test set
    test = _by_client(test_ids[known], len(names))
    moved = Shares(known[test.rows] + corpus.train, test.offsets)
    return Partition(train, moved, {"type": "natural", "column": column, "seed": seed.root}, Named(names))


def _by_client(ids: np.ndarray, clients: int) -> Shares:
    return Shares.cut(np.argsort(ids, kind="stable"), np.bincount(ids, minlength=clients))
