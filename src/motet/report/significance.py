"""Is one method better than another, or was it the choice of test items? The paired bootstrap (Efron & Tibshirani 1993, ch. 16;
for language tasks Koehn 2004): both are judged on the same resampled items, many times over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError

CHUNK = 4_000_000  # numbers of one piece of resampling
FEW = 64  # kinds of rows
Statistic = Callable[[np.ndarray], np.ndarray]  # of the means of columns, which are in the last axis


@dataclass(frozen=True)
class Comparison:
    """`difference` is first − second, `low` and `high` its 95 % interval, `p` two-sided: how often chance alone goes so far."""

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
    """Compare two methods by their scores on the same items, row by row.

    `strata` numbers the group each item belongs to (a client): items are resampled within groups, and every group counts the
    same, as in an unweighted mean over clients. Rows of several numbers (counts) need a `statistic`, which makes a method's
    number of the means of its columns: an F1, say. `repeats`: how often the same item may be among the rows (judged under
    several seeds, in unknown order); taken as if they said the same each time.

    Resamples of n items vary by (n − 1)/n too little, which matters for clients of few items, and is made up for. Those who
    have one item are one group, in which it can be seen how much they vary.
    """
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != two.shape or not len(one):
        raise ConfigError(
            f"a paired comparison needs the same items on both sides; there are {one.shape} and {two.shape}."
        )
    rng = np.random.Generator(np.random.Philox(seed))
    groups = _groups(np.zeros(len(one), np.int64) if strata is None else np.asarray(strata))
    rows = (one - two).reshape(len(one), -1) if statistic is None else np.concatenate([one, two], axis=1)
    difference: Statistic = _only if statistic is None else _difference(statistic, one.shape[1])
    observed, drawn = 0.0, np.zeros(samples)
    for group, share in groups:
        here = difference(rows[group].mean(0))
        off = difference(_resampled(rows[group], samples, rng)) - here
        observed += share * float(here)
        drawn += share * (here + math.sqrt(repeats * len(group) / max(1, len(group) - 1)) * off)
    low, high = np.quantile(drawn, [0.025, 0.975])
    # Under no difference the deviations are distributed as the resampled ones around the observed difference.
    beyond = int((np.abs(drawn - observed) >= abs(observed) - 1e-12).sum())
    p = min(1.0, (beyond + 1) / (samples + 1)) if len(one) > 1 else 1.0  # of one item nobody knows how it varies
    return Comparison(observed, float(low), float(high), p)


def _only(means: np.ndarray) -> np.ndarray:
    only: np.ndarray = means[..., 0]
    return only


def _difference(statistic: Statistic, width: int) -> Statistic:
    return lambda means: statistic(means[..., :width]) - statistic(means[..., width:])


def _groups(strata: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The items of each group, and what share of the whole it is."""
    order = np.argsort(strata, kind="stable")
    cuts = np.flatnonzero(np.diff(strata[order])) + 1
    found = np.split(order, cuts)
    single = [group for group in found if len(group) == 1]
    several = [(group, 1 / len(found)) for group in found if len(group) > 1]
    return [*several, (np.concatenate(single), len(single) / len(found))] if single else several


def _resampled(rows: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    """The mean of the rows in each resample. Where there are few kinds of rows, these are drawn by their counts."""
    from scipy.sparse import csr_array

    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) <= FEW:
        found: np.ndarray = rng.multinomial(len(rows), counts / len(rows), size=samples) @ kinds / len(rows)
        return found
    found = np.empty((samples, rows.shape[1]))
    step = max(1, CHUNK // len(rows))
    for at in range(0, samples, step):
        picks = rng.integers(0, len(rows), (min(step, samples - at), len(rows)))
        starts = np.arange(0, picks.size + 1, len(rows))
        found[at : at + step] = csr_array((np.ones(picks.size), picks.ravel(), starts), picks.shape) @ rows / len(rows)
    return found
