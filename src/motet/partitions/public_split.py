"""Hold out public texts: rows that the server and all clients may read, without labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.partitions.partition import ClientRows, Partition


def hold_out_public(partition: Partition, share: float, seed: Seed) -> Partition:
    """Hold out a random share of each client's training rows (of each phase, if data change over time)."""
    if partition.public is not None:
        raise ConfigError(
            f"data.public_share is {share:g}, but partition {partition.recipe.get('type')} already has public rows. "
            "Set one of the two."
        )
    private, shared = [], []
    for piece, rows in enumerate(partition.train.phase_pieces()):
        is_public = np.zeros(len(rows), bool)
        is_public[seed.derive("public", piece).numpy().permutation(len(rows))[: round(share * len(rows))]] = True
        private.append(rows[~is_public])
        shared.append(rows[is_public])
    public = seed.derive("public").numpy().permutation(np.concatenate(shared))
    if not len(public):
        raise ConfigError(f"data.public_share is {share:g}, which is less than one row of every client. Raise it.")
    train = replace(ClientRows.from_lists(private), phases=partition.train.phases)
    return replace(partition, train=train, recipe={**partition.recipe, "public_share": share}, public=public)
