"""Dirichlet partitioning (FedNLP): draw a mixture of categories for each client, then assign rows to match it.

    q ~ Dir(α·p), with p the empirical prior; a client of size s gets about q·s examples of each category

When a category runs out, the rest of the client's quota is filled from the other categories, in proportion to what they
have left ("dynamic reassigning"). So every example is assigned exactly once, and no client is dropped.

Quotas are rounded by largest remainders. FedNLP's code rounds one category after the other, which starves the last
ones. For comparison, this is available as `rounding="sequential"`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows
from motet.partitions.traits import Trait

Rounding = Literal["largest_remainder", "sequential"]
SizesFor = Callable[[int], np.ndarray]  # from the number of examples to the size of each client
ALPHA_HINT = "0.1: nearly one category per client, 100: all clients alike"


def dirichlet_split(
    corpus: Corpus,
    seed: Seed,
    trait: Trait,
    clients: int,
    alpha: float,
    *,
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
    sizes_for: SizesFor | None = None,
) -> tuple[ClientRows, ClientRows]:
    """Return the training and test rows of each client. Both follow the same mixtures, unless `independent_test`."""
    train, test = trait.codes[: corpus.num_train], trait.codes[corpus.num_train :]
    prior = np.bincount(train, minlength=len(trait.categories)) / corpus.num_train
    q = sample_mixtures(prior, alpha, clients, seed.derive("mixtures").numpy())
    q_test = sample_mixtures(prior, alpha, clients, seed.derive("test mixtures").numpy()) if independent_test else q
    sizes_for = sizes_for or (lambda examples: equal_sizes(examples, clients))
    train_rows = assign_rows(train, q, seed.derive("train").numpy(), rounding, sizes_for(len(train)))
    test_rows = assign_rows(test, q_test, seed.derive("test").numpy(), rounding, sizes_for(len(test)))
    return train_rows, ClientRows(test_rows.rows + corpus.num_train, test_rows.offsets)


def equal_sizes(examples: int, clients: int) -> np.ndarray:
    """Return ⌊n/K⌋ for each client; the last one also gets the remainder, as in FedNLP."""
    sizes = np.full(clients, examples // clients)
    sizes[-1] += examples - int(sizes.sum())
    return sizes


def sample_mixtures(prior: np.ndarray, alpha: float, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the category distribution of each client, [clients, categories].

    A tiny alpha can underflow to NaN. Such a row is drawn again. After 100 failures, it becomes one category that is
    drawn from the prior.
    """
    present = np.flatnonzero(prior > 0)
    draws = rng.dirichlet(alpha * prior[present], size=clients)
    for _ in range(100):
        failed = np.flatnonzero(~np.isfinite(draws).all(1) | (draws.sum(1) <= 0))
        if not len(failed):
            break
        draws[failed] = rng.dirichlet(alpha * prior[present], size=len(failed))
    else:
        categories = rng.choice(len(present), size=len(failed), p=prior[present] / prior[present].sum())
        draws[failed] = np.eye(len(present))[categories]
    q = np.zeros((clients, len(prior)))
    q[:, present] = draws / draws.sum(1, keepdims=True)
    return q


def assign_rows(
    codes: np.ndarray, q: np.ndarray, rng: np.random.Generator, rounding: Rounding, sizes: np.ndarray | None = None
) -> ClientRows:
    """Assign each row to a client, following the mixtures `q` as long as the categories last."""
    clients, num_categories = q.shape
    sizes = equal_sizes(len(codes), clients) if sizes is None else sizes
    pools = [rng.permutation(rows) for rows in _rows_by_category(codes, num_categories)]
    remaining = np.array([len(pool) for pool in pools])
    counts = np.zeros((clients, num_categories), np.int64)
    for client in range(clients):
        size = int(sizes[client])
        if rounding == "largest_remainder":
            counts[client] = _cap_quota(largest_remainder(q[client] * size, size), remaining)
        else:
            counts[client] = _sequential_quota(q[client], size, remaining)
        remaining -= counts[client]
    return take_from_pools(pools, counts)


def take_from_pools(pools: list[np.ndarray], counts: np.ndarray) -> ClientRows:
    """Give each client counts[client, k] rows of pool k, from the front.

    One sort over all rows is faster than a slice for each client and pool.
    """
    clients = len(counts)
    used = [pool[: int(n)] for pool, n in zip(pools, counts.sum(0), strict=True)]
    rows = np.concatenate(used) if used else np.zeros(0, np.int64)
    owners = np.repeat(np.tile(np.arange(clients), len(pools)), counts.T.ravel())
    return ClientRows.from_sizes(rows[np.argsort(owners, kind="stable")], counts.sum(1))


def largest_remainder(quotas: np.ndarray, total: int) -> np.ndarray:
    """Round quotas to integers that sum to `total`."""
    rounded: np.ndarray = np.floor(quotas).astype(np.int64)
    missing = total - int(rounded.sum())
    if missing > 0:
        rounded[np.argsort(rounded - quotas, kind="stable")[:missing]] += 1
    return rounded


def _rows_by_category(codes: np.ndarray, num_categories: int) -> list[np.ndarray]:
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=num_categories))[:-1])


def _cap_quota(quota: np.ndarray, remaining: np.ndarray) -> np.ndarray:
    """Limit a quota to the remaining examples, and fill it from the other categories."""
    counts = np.minimum(quota, remaining)
    missing = int(quota.sum() - counts.sum())
    capped: np.ndarray = counts + _fill_from_others(missing, remaining - counts) if missing else counts
    return capped


def _sequential_quota(q: np.ndarray, size: int, remaining: np.ndarray) -> np.ndarray:
    """Round the categories one after the other, as in FedNLP's code; the last one gets the rest."""
    counts = np.zeros_like(remaining)
    for k in range(len(q)):
        unfilled = size - int(counts.sum())
        wanted = unfilled if k == len(q) - 1 else min(round(q[k] * size), unfilled)
        available = min(wanted, int(remaining[k] - counts[k]))
        counts[k] += available
        if wanted > available:
            others = remaining - counts
            others[k] = 0
            counts = counts + _fill_from_others(wanted - available, others)
    return counts


def _fill_from_others(missing: int, remaining: np.ndarray) -> np.ndarray:
    """Take `missing` examples in proportion to what each category has left, the smallest category first."""
    counts = np.zeros_like(remaining)
    missing = min(missing, int(remaining.sum()))
    for _ in range(2):  # rounding may leave a remainder for a second pass
        left = remaining - counts
        wanted, total = missing, int(left.sum())
        for k in np.argsort(left, kind="stable")[int((left == 0).sum()) :]:
            if missing <= 0:
                return counts
            available = int(left[k])
            taken = min(math.ceil(available / total * wanted), available, missing)
            counts[k] += taken
            missing -= taken
    return counts
