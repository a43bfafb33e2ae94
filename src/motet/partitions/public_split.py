"""A public part of a corpus: texts that server and clients may all read, without their labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.partitions.partition import ClientRows, Partition


def hold_out_public(partition: Partition, share: float, seed: Seed) -> Partition:
    """A share of every client's training rows given up to all, put together and shuffled."""
    if partition.public is not None:
        raise ConfigError(
            f"data.public_share is {share:g}, but partition {partition.recipe.get('type')} has a public part already; give one."
        )
    kept, given = [], []
    for piece, rows in enumerate(
        partition.train.phase_pieces()
    ):  # a client's, or where they change in time one of its phases
        open_ = np.zeros(len(rows), bool)
        open_[seed.derive("public", piece).numpy().permutation(len(rows))[: round(share * len(rows))]] = True
        kept.append(rows[~open_])
        given.append(rows[open_])
    public = seed.derive("public").numpy().permutation(np.concatenate(given))
    if not len(public):
        raise ConfigError(f"data.public_share is {share:g}, which is no row of any client; raise it.")
    train = replace(ClientRows.from_lists(kept), phases=partition.train.phases)
    return replace(partition, train=train, recipe={**partition.recipe, "public_share": share}, public=public)
