"""How fair a method is to its clients: the worst tenth and the spread, with intervals from a bootstrap over clients.

The worst tenth is no mean, so its variance has no formula. Clients are drawn with replacement instead, and two methods
are compared on the same draws (Efron & Tibshirani 1993, ch. 16).

The variance of the worst tenth is known only as well as that of so few clients. With as many degrees of freedom as there
are clients, equal methods would differ in 12 to 16 % of all comparisons of single runs with 10 or 20 clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from motet.report.significance import MIN_SEEDS, Comparison, compare_models, compare_seeds

RESAMPLES = 2000
ClientStatistic = Callable[[np.ndarray], np.ndarray]  # maps the scores of clients (last axis) to a number


def worst_tenth(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the worst tenth of the clients, at least one."""
    mean: np.ndarray = np.sort(scores, axis=-1)[..., : _count_worst(scores.shape[-1])].mean(-1)
    return mean


def _count_worst(clients: int) -> int:
    return max(1, math.ceil(clients / 10))


def client_spread(scores: np.ndarray) -> np.ndarray:
    """Return the standard deviation over clients."""
    deviation: np.ndarray = scores.std(-1)
    return deviation


def client_interval(
    runs: Sequence[np.ndarray], statistic: ClientStatistic, shares_clients: bool
) -> tuple[float, float] | None:
    """Return the 95 % interval of a statistic of the clients' scores, one array per seed; None for a single client.

    It lies around the observed number. Quantiles of the resamples would not: a resample of n clients has no client that
    is worse than the worst of them, and often lacks the worst.
    """
    comparison = compare_clients(runs, [np.zeros_like(scores) for scores in runs], statistic, shares_clients)
    return None if comparison is None else (comparison.low, comparison.high)


def compare_clients(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], statistic: ClientStatistic, shares_clients: bool
) -> Comparison | None:
    """Compare two methods by a statistic of their clients' scores, one array per seed. None for a single client.

    If all seeds have the same clients, the same clients are drawn for every seed.
    """
    if min(map(len, first), default=0) < 2 or [len(a) for a in first] != [len(b) for b in second]:
        return None
    pairs = list(zip(first, second, strict=True))
    values = np.array([float(statistic(a) - statistic(b)) for a, b in pairs])
    draws = [_draw(len(a), 0 if shares_clients else run) for run, (a, _) in enumerate(pairs)]
    resampled = np.mean([statistic(a[d]) - statistic(b[d]) for (a, b), d in zip(pairs, draws, strict=True)], axis=0)
    count = min(map(len, first))
    # Resamples of n clients vary less than n clients do, by (n − 1)/n.
    variance = float(resampled.var()) * count / (count - 1)
    degrees = max(1, (_count_worst(count) if statistic is worst_tenth else count) - 1)
    if len(values) < MIN_SEEDS:
        return compare_models(values.mean(), variance, degrees).compare("clients")
    # Seeds with other clients already vary as much as clients do.
    shared = variance if shares_clients else 0.0
    return compare_seeds(values, shared, degrees).compare("seeds", "clients")


def _draw(clients: int, seed: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(seed))
    return rng.integers(0, clients, (RESAMPLES, clients))
