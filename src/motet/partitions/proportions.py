"""Partition by given label proportions, drawn without replacement (Federated Split BERT).

Clients of size |D|/K cannot all meet the published proportions (QQP would need 1.2 client sizes of positives). So all
clients have the common size

    n = ⌊min_l available_l / Σ_i q_il⌋        with counts q_il·n rounded by largest remainder
"""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.suggestions import did_you_mean
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import largest_remainder, take_from_pools
from motet.partitions.partition import ClientRows, Partition
from motet.partitions.traits_by_name import get_trait

ProportionTable = tuple[tuple[float, ...], ...]


def _binary_table(*percentages: int) -> ProportionTable:
    """Return a table for two labels from the percentage of the first."""
    return tuple((p, 100 - p) for p in percentages)


_THREE_CLIENTS = _binary_table(80, 50, 20)
_TEN_CLIENTS = _binary_table(90, 80, 70, 60, 50, 40, 30, 20, 10, 2)
# One row per client, in percent. Client 10 of MRPC sums to 99 in the paper, too.
PUBLISHED_TABLES: dict[str, dict[int, ProportionTable]] = {
    "glue-mrpc": {
        3: ((95, 5), (75, 25), (25, 75)),
        10: ((92, 8), (86, 14), (71, 29), (66, 34), (50, 50), (44, 56), (35, 65), (28, 72), (12, 88), (51, 48)),
    },
    "glue-cola": {3: ((90.5, 9.5), (83, 17), (40, 60))},
    "glue-qqp": {3: ((70, 30), (37, 63), (13, 87)), 10: _TEN_CLIENTS},
    "glue-mnli": {3: ((86, 5, 9), (5, 90, 5), (5, 5, 90))},
    "glue-sst2": {3: _THREE_CLIENTS, 10: _TEN_CLIENTS},
    "glue-qnli": {3: _THREE_CLIENTS, 10: _TEN_CLIENTS},
    "glue-rte": {3: _THREE_CLIENTS},
    "glue-wnli": {3: _THREE_CLIENTS},
}
# The columns of the published tables: the positive label comes first.
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
    """Give each client fixed label proportions: your table, or the published one of a GLUE task for 3 or 10 clients."""
    trait = get_trait(corpus, by, seed)
    categories = [str(name) for name in trait.categories]
    rows = table if table is not None else _published_table(corpus.name, clients or 3)
    columns = labels or (PUBLISHED_LABELS.get(corpus.name, ()) if table is None else ()) or tuple(categories)
    _check_table(rows, columns, clients, categories)
    q = np.zeros((len(rows), len(categories)))
    q[:, [categories.index(name) for name in columns]] = rows
    q /= q.sum(1, keepdims=True)

    def split(start: int, stop: int, purpose: str) -> ClientRows:
        rng = seed.derive("proportions", purpose).numpy()
        codes = trait.codes[start:stop]
        pools = [start + rng.permutation(np.flatnonzero(codes == k)) for k in range(len(categories))]
        return take_from_pools(pools, label_quotas(q, np.array([len(pool) for pool in pools]), purpose, columns))

    train, test = split(0, corpus.num_train, "train"), split(corpus.num_train, len(corpus), "test")
    recipe = {
        "type": "proportions",
        "clients": len(rows),
        "table": [list(row) for row in rows],
        "labels": list(columns),
        **trait.settings,
        "seed": seed.root,
    }
    return Partition(train, test, recipe)


def label_quotas(
    q: np.ndarray, available: np.ndarray, purpose: str = "train", names: tuple[str, ...] = ()
) -> np.ndarray:
    """Return the number of examples per client and label, for the largest common size that the labels allow."""
    if not available.sum():
        return np.zeros(q.shape, np.int64)
    demand = q.sum(0)  # in client sizes
    missing = np.flatnonzero((demand > 0) & (available == 0))
    if len(missing) and purpose == "train":
        raise ConfigError(
            f"partition.table asks for {demand[missing[0]]:.2f} client sizes of a label without {purpose} examples; "
            f"the labels are {', '.join(names)}. Set its share to 0, or name the columns with partition.labels."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        size = int(np.floor(np.where(demand > 0, available / demand, np.inf).min() + 1e-9))
    counts = np.stack([largest_remainder(row * size, size) for row in q])
    while size > 0 and (counts.sum(0) > available).any():  # rounding up took one example too many
        size -= 1
        counts = np.stack([largest_remainder(row * size, size) for row in q])
    return counts


def _published_table(corpus: str, clients: int) -> ProportionTable:
    name = corpus.removesuffix("-mm")
    if name not in PUBLISHED_TABLES:
        raise ConfigError(
            f"partition.table is missing, and there is no published table for '{corpus}' (only for "
            f"{', '.join(PUBLISHED_TABLES)}). Give one row per client and one number per label, such as "
            "partition.table=[[80,20],[50,50],[20,80]]. For scores, use partition.type=sorted."
        )
    if clients not in PUBLISHED_TABLES[name]:
        known = " or ".join(map(str, PUBLISHED_TABLES[name]))
        raise ConfigError(
            f"partition.clients is {clients}; the published proportions for {corpus} are for {known} clients."
        )
    return PUBLISHED_TABLES[name][clients]


def _check_table(table: ProportionTable, columns: tuple[str, ...], clients: int | None, labels: list[str]) -> None:
    if unknown := next((name for name in columns if name not in labels), None):
        raise ConfigError(
            f"partition.labels: there is no label '{unknown}'; the labels are {', '.join(labels)}."
            f"{did_you_mean(unknown, labels)}"
        )
    if clients is not None and clients != len(table):
        raise ConfigError(
            f"partition.clients is {clients}, but partition.table has {len(table)} rows; expected one row per client."
        )
    for number, row in enumerate(table, 1):
        if len(row) != len(columns) or min(row) < 0 or sum(row) <= 0:
            raise ConfigError(
                f"partition.table, client {number}: {list(row)}; expected {len(columns)} shares of 0 or more, "
                f"for {', '.join(columns)}."
            )
