"""Given proportions: so much of each label for each client, drawn without replacement (Federated Split BERT's tables).

Quotas for clients of size |D|/K cannot all be met (QQP wants 1.2 client-sizes of positives), so that the common size is

    n = ⌊min_l available_l / Σ_i q_il⌋        counts q_il·n by largest remainder
"""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError, did_you_mean
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import largest_remainder, take_from_pools
from motet.partitions.partition import ClientRows, Partition
from motet.partitions.traits_by_name import get_trait

ProportionTable = tuple[tuple[float, ...], ...]
HALVES = (80, 50, 20)
TENTHS = (90, 80, 70, 60, 50, 40, 30, 20, 10, 2)
# Percent of the first label, for two labels; the paper's client 10 of MRPC sums to 99.
PUBLISHED_TABLES: dict[str, dict[int, ProportionTable]] = {
    "glue-mrpc": {
        3: ((95, 5), (75, 25), (25, 75)),
        10: ((92, 8), (86, 14), (71, 29), (66, 34), (50, 50), (44, 56), (35, 65), (28, 72), (12, 88), (51, 48)),
    },
    "glue-cola": {3: ((90.5, 9.5), (83, 17), (40, 60))},
    "glue-qqp": {3: ((70, 30), (37, 63), (13, 87)), 10: tuple((p, 100 - p) for p in TENTHS)},
    "glue-mnli": {3: ((86, 5, 9), (5, 90, 5), (5, 5, 90))},
    "glue-sst2": {3: tuple((p, 100 - p) for p in HALVES), 10: tuple((p, 100 - p) for p in TENTHS)},
    "glue-qnli": {3: tuple((p, 100 - p) for p in HALVES), 10: tuple((p, 100 - p) for p in TENTHS)},
    "glue-rte": {3: tuple((p, 100 - p) for p in HALVES)},
    "glue-wnli": {3: tuple((p, 100 - p) for p in HALVES)},
}
# The positive label comes first in the paper's tables.
PUBLISHED_LABELS = {
    "glue-mrpc": ("equivalent", "not_equivalent"),
    "glue-cola": ("acceptable", "unacceptable"),
    "glue-qqp": ("duplicate", "not_duplicate"),
    "glue-mnli": ("entailment", "neutral", "contradiction"),
    "glue-sst2": ("positive", "negative"),
    "glue-qnli": ("entailment", "not_entailment"),
    "glue-rte": ("entailment", "not_entailment"),
    "glue-wnli": ("entailment", "not_entailment"),
}


def proportions(
    corpus: Corpus,
    seed: Seed,
    clients: int | None = None,
    table: ProportionTable | None = None,
    labels: tuple[str, ...] = (),
    by: str = "label",
) -> Partition:
    """Each client has the given shares of the labels: a table of yours, or the one published for a GLUE task and 3 or 10."""
    trait = get_trait(corpus, by, seed)
    rows = table if table is not None else _published(corpus.name, clients or 3)
    order = labels or (PUBLISHED_LABELS.get(corpus.name, ()) if table is None else ()) or tuple(map(str, trait.names))
    _check(rows, order, clients, [str(n) for n in trait.names])
    wanted = np.zeros((len(rows), len(trait.names)))
    wanted[:, [trait.names.tolist().index(name) for name in order]] = rows
    wanted /= wanted.sum(1, keepdims=True)

    def dealt(first: int, last: int, purpose: str) -> ClientRows:
        rng = seed.derive("proportions", purpose).numpy()
        ids = trait.codes[first:last]
        piles = [first + rng.permutation(np.flatnonzero(ids == k)) for k in range(len(trait.names))]
        return take_from_pools(piles, label_quotas(wanted, np.array([len(p) for p in piles]), purpose, order))

    train, test = dealt(0, corpus.num_train, "train"), dealt(corpus.num_train, len(corpus), "test")
    made = {"clients": len(rows), "table": [list(row) for row in rows], "labels": list(order), **trait.settings}
    return Partition(train, test, {"type": "proportions", **made, "seed": seed.root})


def label_quotas(
    wanted: np.ndarray, available: np.ndarray, purpose: str = "train", names: tuple[str, ...] = ()
) -> np.ndarray:
    """How many of each label each client gets: the largest common size that all labels last for."""
    if not available.sum():
        return np.zeros(wanted.shape, np.int64)
    asked = wanted.sum(0)
    short = np.flatnonzero((asked > 0) & (available == 0))
    if len(short) and purpose == "train":
        raise ConfigError(
            f"partition.table asks for {asked[short[0]]:.2f} client sizes of a label that has no {purpose} example; "
            f"the labels are {', '.join(names)}. Give it 0, or say with partition.labels which columns are meant."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        size = int(np.floor(np.where(asked > 0, available / asked, np.inf).min() + 1e-9))
    counts = np.stack([largest_remainder(row * size, size) for row in wanted])
    while size > 0 and (counts.sum(0) > available).any():  # rounding up asked for one too many
        size -= 1
        counts = np.stack([largest_remainder(row * size, size) for row in wanted])
    return counts


def _published(corpus: str, clients: int) -> ProportionTable:
    name = corpus.removesuffix("-mm")
    if name not in PUBLISHED_TABLES:
        raise ConfigError(
            f"partition.table is missing, and none is published for '{corpus}' (there is one for {', '.join(PUBLISHED_TABLES)}); "
            "give one row a client and one number a label, such as partition.table=[[80,20],[50,50],[20,80]]. "
            "For scores: partition.type=sorted."
        )
    if clients not in PUBLISHED_TABLES[name]:
        known = " or ".join(map(str, PUBLISHED_TABLES[name]))
        raise ConfigError(
            f"partition.clients is {clients}; for {corpus} there are published proportions for {known} clients."
        )
    return PUBLISHED_TABLES[name][clients]


def _check(table: ProportionTable, order: tuple[str, ...], clients: int | None, names: list[str]) -> None:
    if odd := next((name for name in order if name not in names), None):
        raise ConfigError(
            f"partition.labels: there is no label '{odd}'; there is {', '.join(names)}.{did_you_mean(odd, names)}"
        )
    if clients is not None and clients != len(table):
        raise ConfigError(
            f"partition.clients is {clients}, but partition.table has {len(table)} rows; one row a client."
        )
    for number, row in enumerate(table, 1):
        if len(row) != len(order) or min(row) < 0 or sum(row) <= 0:
            raise ConfigError(
                f"partition.table, client {number}: {list(row)}; expected {len(order)} shares of 0 or more, "
                f"for {', '.join(order)}."
            )
