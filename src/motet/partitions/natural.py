"""Natural clients: whoever the data say. One client for each value of a column: author, domain, sub-dataset, mailbox."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.partitions.traits import Trait


def natural(corpus: Corpus, seed: Seed, column: str = "client", at_least: int | None = None) -> Partition:
    """One client for each value of a column (author, domain, mailbox) that has at least so many training examples."""
    names, codes = corpus.factorize(column)
    counts = np.bincount(codes[: corpus.num_train], minlength=len(names))
    there = int((counts > 0).sum())
    if there < 2:
        only = names[int(counts.argmax())]
        raise ConfigError(
            f"partition.column: '{column}' has one value, '{only}'; a federation needs two clients or more."
        )
    if at_least is None:
        _check_singletons(column, counts, corpus.num_train)
    kept = np.flatnonzero(counts >= max(1, at_least or 1))
    if len(kept) < 2:
        raise ConfigError(
            f"partition.at_least is {at_least}, but the largest client of column '{column}' has {counts.max():,} training "
            f"examples and the second {np.sort(counts)[-2]:,}; ask for at most that."
        )
    train, test, named = split_by_trait(corpus, Trait(names, codes), kept)
    left = {"left_out": there - len(kept)} if len(kept) < there else {}
    return Partition(
        train, test, {"type": "natural", "column": column, "at_least": at_least, **left, "seed": seed.root}, named
    )


def split_by_trait(
    corpus: Corpus, trait: Trait, kept: np.ndarray | None = None
) -> tuple[ClientRows, ClientRows, NamedClients]:
    """A client for each kind that occurs in training, or for those that are kept.

    A test row of somebody who has no training row is only in the global test set.
    """
    if kept is None:
        kept = np.unique(trait.codes[: corpus.num_train])
    place = np.full(len(trait.names), -1, np.int64)
    place[kept] = np.arange(len(kept))
    ids = place[trait.codes]
    train, test = _rows(ids[: corpus.num_train], len(kept)), _rows(ids[corpus.num_train :], len(kept))
    return train, ClientRows(test.rows + corpus.num_train, test.offsets), NamedClients(trait.names[kept])


def _rows(ids: np.ndarray, clients: int) -> ClientRows:
    known = np.flatnonzero(ids >= 0)
    return ClientRows.from_sizes(
        known[np.argsort(ids[known], kind="stable")], np.bincount(ids[known], minlength=clients)
    )


def _check_singletons(column: str, counts: np.ndarray, rows: int) -> None:
    there, single = int((counts > 0).sum()), int((counts == 1).sum())
    if rows >= 100 and single > 0.9 * there:
        raise ConfigError(
            f"partition.column: '{column}' has {there:,} values in {rows:,} training rows, and {single:,} of them occur once: "
            f"nearly every client would have one example. partition.at_least=2 keeps the {there - single:,} others, "
            "partition.at_least=1 keeps all; or name a column that groups rows."
        )
