"""Significance tests with the paired bootstrap (Efron & Tibshirani 1993, ch. 16; for language tasks Koehn 2004).

Two methods are compared on the same resampled test examples, many times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError

CHUNK_SIZE = 4_000_000  # picks that are resampled at once
MAX_DISTINCT_ROWS = 64  # up to this many distinct rows, counts are drawn instead of rows
Statistic = Callable[[np.ndarray, int], np.ndarray]  # maps column means (last axis) and the sample size to a number


@dataclass(frozen=True)
class Comparison:
    """The difference first − second, its 95 % confidence interval and its two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    *,
    samples: int = 10_000,
    seed: int = 0,
    strata: Sequence[int] | np.ndarray | None = None,
    statistic: Statistic | None = None,
    repeats: int = 1,
) -> Comparison:
    """Compare two methods by their scores on the same examples, row by row.

    `strata`: the group (client) of each example. Examples are resampled within groups, and every group counts the same.
    `statistic`: computes a method's number, such as F1, from the column means and the number of rows.
    `repeats`: how often an example may occur among the rows; repeated examples count as if they all agreed.

    The variance of resamples of n examples is too small by (n − 1)/n, which matters for small clients; this is
    corrected. Clients with a single example form one group, in which their variance can be estimated.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape or not len(a):
        raise ConfigError(f"a paired test needs scores on the same examples; the shapes are {a.shape} and {b.shape}.")
    rng = np.random.Generator(np.random.Philox(seed))
    rows = (a - b).reshape(len(a), -1) if statistic is None else np.concatenate([a, b], axis=1)
    difference: Statistic = _first_column if statistic is None else _difference_of(statistic, a.shape[1])
    observed, resampled = 0.0, np.zeros(samples)
    for group, share in _split_groups(np.zeros(len(a), np.int64) if strata is None else np.asarray(strata)):
        group_difference = difference(rows[group].mean(0), len(group))
        deviation = difference(_resample_means(rows[group], samples, rng), len(group)) - group_difference
        correction = math.sqrt(repeats * len(group) / max(1, len(group) - 1))
        observed += share * float(group_difference)
        resampled += share * (group_difference + correction * deviation)
    low, high = np.quantile(resampled, [0.025, 0.975])
    # Under the null hypothesis, the difference varies around 0 as the resampled one varies around the observed one.
    extreme = int((np.abs(resampled - observed) >= abs(observed) - 1e-12).sum())
    p = min(1.0, (extreme + 1) / (samples + 1)) if len(a) > 1 else 1.0  # one example has no variance
    return Comparison(difference=observed, low=float(low), high=float(high), p=p)


def _first_column(means: np.ndarray, _: int) -> np.ndarray:
    column: np.ndarray = means[..., 0]
    return column


def _difference_of(statistic: Statistic, width: int) -> Statistic:
    return lambda means, count: statistic(means[..., :width], count) - statistic(means[..., width:], count)


def _split_groups(strata: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Return the examples of each group, and the share of the group in the result."""
    order = np.argsort(strata, kind="stable")
    boundaries = np.flatnonzero(np.diff(strata[order])) + 1
    groups = np.split(order, boundaries)
    single = [group for group in groups if len(group) == 1]
    several = [(group, 1 / len(groups)) for group in groups if len(group) > 1]
    return [*several, (np.concatenate(single), len(single) / len(groups))] if single else several


def _resample_means(rows: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the mean row of each resample."""
    from scipy.sparse import csr_array

    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= MAX_DISTINCT_ROWS:
        means: np.ndarray = rng.multinomial(len(rows), counts / len(rows), size=samples) @ distinct / len(rows)
        return means
    means = np.empty((samples, rows.shape[1]))
    step = max(1, CHUNK_SIZE // len(rows))
    for start in range(0, samples, step):
        picks = rng.integers(0, len(rows), (min(step, samples - start), len(rows)))
        row_starts = np.arange(0, picks.size + 1, len(rows))
        counts_matrix = csr_array((np.ones(picks.size), picks.ravel(), row_starts), picks.shape)
        means[start : start + step] = counts_matrix @ rows / len(rows)
    return means
