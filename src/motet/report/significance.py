"""Is one method better than another, or was it the choice of test items? The paired bootstrap (Efron & Tibshirani 1993, ch. 16;
for language tasks Koehn 2004): both are judged on the same resampled items, many times over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError

CHUNK = 4_000_000  # numbers of one piece of resampling


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
    statistic: Callable[[np.ndarray], float] | None = None,
) -> Comparison:
    """Compare two methods by their scores on the same items, row by row.

    `strata` numbers the group each item belongs to (a client): items are resampled within groups, and every group counts the
    same, as in an unweighted mean over clients. `statistic` makes a number of some rows where the mean does not (an F1 of
    rows of counts, say); it is called 2·`samples` times.
    """
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != two.shape or not len(one):
        raise ConfigError(f"a paired comparison needs the same items on both sides; there are {one.shape} and {two.shape}.")
    rng = np.random.Generator(np.random.Philox(seed))
    groups = _groups(np.zeros(len(one), np.int64) if strata is None else np.asarray(strata))
    if statistic is None:
        observed = _stratified_mean(one - two, groups)
        drawn = _means(one - two, groups, samples, rng)
    else:
        observed = statistic(one) - statistic(two)
        picks = (np.concatenate([rng.choice(g, len(g)) for g in groups]) for _ in range(samples))
        drawn = np.array([statistic(one[p]) - statistic(two[p]) for p in picks])
    low, high = np.quantile(drawn, [0.025, 0.975])
    # Under no difference the deviations are distributed as the resampled ones around the observed difference.
    beyond = int((np.abs(drawn - observed) >= abs(observed) - 1e-12).sum())
    return Comparison(float(observed), float(low), float(high), min(1.0, (beyond + 1) / (samples + 1)))


def _groups(strata: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(strata, kind="stable")
    cuts = np.flatnonzero(np.diff(strata[order])) + 1
    return np.split(order, cuts)


def _stratified_mean(values: np.ndarray, groups: list[np.ndarray]) -> float:
    return float(np.mean([values[g].mean() for g in groups]))


def _means(values: np.ndarray, groups: list[np.ndarray], samples: int, rng: np.random.Generator) -> np.ndarray:
    """The stratified mean of each resample. Differences of few values (right, wrong) are drawn by their counts."""
    total = np.zeros(samples)
    for group in groups:
        kinds, counts = np.unique(values[group], return_counts=True)
        if len(kinds) <= 64:
            total += rng.multinomial(len(group), counts / len(group), size=samples) @ kinds / len(group)
            continue
        step = max(1, CHUNK // len(group))
        for at in range(0, samples, step):
            picks = rng.integers(0, len(group), (min(step, samples - at), len(group)))
            total[at : at + step] += values[group][picks].mean(1)
    return total / len(groups)
