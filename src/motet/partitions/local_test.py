"""Tests of one's own: a share of each client's rows is what that client is tested on."""

from __future__ import annotations

import dataclasses

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition


def merge_splits(corpus: Corpus) -> Corpus:
    """All rows for training, to be divided together (Federated Split BERT merges GLUE's train and dev)."""
    return dataclasses.replace(corpus, num_train=len(corpus))


def hold_out_local_tests(partition: Partition, share: float, seed: Seed, whole: bool) -> Partition:
    """Each client's training rows cut in two at random, so that who has two rows or more is tested on one or more.

    `whole`: the corpus's test rows were divided too, so that the global test set is what the clients are tested on.
    """
    if not 0 < share < 1:
        raise ConfigError(f"partition.local_test is {share}; it is a share of each client's rows, above 0 and below 1.")
    rows, ends = partition.train.rows, partition.train.offsets
    sizes = np.diff(ends)  # of each piece: in a drift, every phase has tests of its own
    tests = np.where(sizes > 1, np.clip(np.round(sizes * share), 1, sizes - 1), 0).astype(np.int64)
    piece = np.repeat(np.arange(len(sizes)), sizes)
    mixed = np.lexsort((seed.derive("local test").numpy().random(len(rows)), piece))
    chosen = np.zeros(len(rows), bool)
    chosen[mixed[np.arange(len(rows)) - ends[piece] < tests[piece]]] = True
    phases = partition.train.phases
    train = ClientRows(rows[~chosen], np.concatenate([[0], np.cumsum(sizes - tests)]), phases)
    test = ClientRows(rows[chosen], np.concatenate([[0], np.cumsum(tests)]), phases)
    recipe = {**partition.recipe, "local_test": share, "merge": whole}
    held = np.sort(test.rows) if whole else partition.global_test
    return dataclasses.replace(partition, train=train, test=test, recipe=recipe, global_test=held)
