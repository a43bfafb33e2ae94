"""Hold out a development set: training rows that no client trains on, to select the best round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.core.rng import Seed
from motet.partitions.partition import ClientRows, Partition


def hold_out_dev(partition: Partition, share: float, seed: Seed) -> Partition:
    """Hold out a random share of all training rows.

    The rows are drawn from all clients together, so that clients with few rows contribute, too. Every client keeps at
    least one row in each phase. If several clients have a row, it is held out from all of them.
    """
    train = partition.train
    order = seed.derive("dev").numpy().permutation(len(train.rows))
    piece = np.repeat(np.arange(len(train.offsets) - 1), np.diff(train.offsets))
    _, first_of_piece = np.unique(piece[order], return_index=True)
    rows = train.rows[order]
    reserved = rows[first_of_piece]
    _, first_occurrence = np.unique(rows, return_index=True)
    candidates = rows[np.sort(first_occurrence)]
    candidates = candidates[~np.isin(candidates, reserved)]
    dev = np.sort(candidates[: max(1, round(share * len(first_occurrence)))])
    is_kept = ~np.isin(train.rows, dev)
    offsets = np.concatenate([[0], np.cumsum(is_kept)])[train.offsets]
    held_out_offsets = (train.offsets - offsets)[:: train.phases]
    return replace(
        partition,
        train=ClientRows(train.rows[is_kept], offsets, train.phases),
        local_dev=ClientRows(train.rows[~is_kept], held_out_offsets),
        recipe={**partition.recipe, "dev_share": share},
        dev=dev,
    )
