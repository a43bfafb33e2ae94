"""A development set: training rows that nobody trains on, by which the best round is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.core.rng import Seed
from motet.partitions.partition import ClientRows, Partition


def hold_out_dev(partition: Partition, share: float, seed: Seed) -> Partition:
    """A share of all clients' training rows put aside, at random, so that even clients of a few rows have their part in it.

    Nobody is left without a row that had one: of every client (and of each of its phases) one row, drawn at random, stays. A
    row that several have is put aside by all of them.
    """
    train = partition.train
    mixed = seed.derive("dev").numpy().permutation(len(train.rows))
    piece = np.repeat(np.arange(len(train.offsets) - 1), np.diff(train.offsets))
    _, first = np.unique(piece[mixed], return_index=True)
    rows = train.rows[mixed]
    _, once = np.unique(rows, return_index=True)
    free = rows[np.sort(once)]
    free = free[~np.isin(free, rows[first])]
    dev = np.sort(free[: max(1, round(share * len(once)))])
    stays = ~np.isin(train.rows, dev)
    offsets = np.concatenate([[0], np.cumsum(stays)])[train.offsets]
    kept = ClientRows(train.rows[stays], offsets, train.phases)
    return replace(partition, train=kept, recipe={**partition.recipe, "dev_share": share}, dev=dev)
