"""Hold out local test sets: a share of each client's training rows."""

from __future__ import annotations

import dataclasses

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition


def merge_splits(corpus: Corpus) -> Corpus:
    """Make all rows training rows, to partition them together, as Federated Split BERT does with GLUE."""
    return dataclasses.replace(corpus, num_train=len(corpus))


def hold_out_local_tests(partition: Partition, share: float, seed: Seed, merged: bool) -> Partition:
    """Hold out a random share of each client's rows; a client with two rows or more gets at least one test row.

    `merged`: the corpus's test rows were partitioned, too, so the global test set is the union of the local ones.
    """
    if not 0 < share < 1:
        raise ConfigError(
            f"partition.local_test is {share}; expected a share of each client's rows above 0 and below 1."
        )
    rows, offsets, phases = partition.train.rows, partition.train.offsets, partition.train.phases
    sizes = np.diff(offsets)  # of each client in each phase
    test_sizes = np.where(sizes > 1, np.clip(np.round(sizes * share), 1, sizes - 1), 0).astype(np.int64)
    piece = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((seed.derive("local test").numpy().random(len(rows)), piece))
    is_test = np.zeros(len(rows), bool)
    is_test[order[np.arange(len(rows)) - offsets[piece] < test_sizes[piece]]] = True
    test = ClientRows(rows[is_test], np.concatenate([[0], np.cumsum(test_sizes)]), phases)
    return dataclasses.replace(
        partition,
        train=ClientRows(rows[~is_test], np.concatenate([[0], np.cumsum(sizes - test_sizes)]), phases),
        test=test,
        recipe={**partition.recipe, "local_test": share, "merge": merged},
        global_test=np.sort(test.rows) if merged else partition.global_test,
    )
