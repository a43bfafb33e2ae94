"""How many seeds a difference needs to be found, from the variances of runs that are already there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motet.report.significance import MIN_SEEDS, SIGNIFICANCE_LEVEL, Estimate

FEW_SEEDS = 10  # below, a variance between seeds is a rough estimate
POWER = 0.8  # of ten experiments in which the difference exists, eight find it
MOST_SEEDS = 500
NOTHING_VARIES = "nothing can be estimated, because the methods had equal scores in all runs"


class SeedPlan(NamedTuple):
    """The seeds that a column needs, and the estimates behind it: the deviation between seeds, the error from the examples.

    `seeds` belongs to the median pair of methods, `most_seeds` to the pair that varies most. None: no number is enough.
    Without a deviation, the methods had equal scores in all runs, and nothing is known.
    """

    column: str
    runs: int  # seeds that the estimate comes from
    deviation: float | None
    fixed_error: float | None
    seeds: int | None
    most_seeds: int | None

    def format_cells(self) -> list[str]:
        """Return the numbers as text, in the order of the fields."""
        if self.deviation is None or self.fixed_error is None:
            return [str(self.runs), *["?"] * 4]
        counts = ["–" if count is None else str(count) for count in (self.seeds, self.most_seeds)]
        return [str(self.runs), f"{self.deviation:.2f}", f"{self.fixed_error:.2f}", *counts]


def compute_power(difference: float, seeds: int, seed_variance: float, fixed_variance: float) -> float:
    """Return the probability that a t-test over `seeds` seeds finds a true difference between two methods, with its sign.

    `seed_variance` is the variance of the difference between seeds, `fixed_variance` the part of the variance of the
    mean that more seeds do not reduce (see `significance.Estimate`).
    """
    from scipy.stats import nct

    between = seed_variance / seeds
    variance = between + fixed_variance
    if variance <= 0:
        return float(difference != 0)
    error = math.sqrt(variance)
    test = Estimate(np.asarray(difference), np.asarray(between), seeds - 1, np.asarray(fixed_variance), math.inf)
    degrees = variance**2 / (between**2 / (seeds - 1)) if between > 0 else math.inf
    return float(nct.sf(float(test.margin()) / error, min(degrees, 1e6), abs(difference) / error))


def count_needed_seeds(difference: float, seed_variance: float, fixed_variance: float) -> int | None:
    """Return the smallest number of seeds that finds the difference with probability `POWER`.

    None if no number of seeds does, because the test set is too small for the difference.
    """
    low, high = MIN_SEEDS - 1, MOST_SEEDS
    if compute_power(difference, high, seed_variance, fixed_variance) < POWER:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if compute_power(difference, middle, seed_variance, fixed_variance) >= POWER:
            high = middle
        else:
            low = middle
    return high


def describe_assumptions(plans: Sequence[SeedPlan]) -> str:
    """Say what the numbers of seeds mean, and how sure they are."""
    runs = min(plan.runs for plan in plans)
    rough = f" The deviation comes from {runs} seeds, so it is a rough estimate." if runs < FEW_SEEDS else ""
    is_unknown = any(plan.deviation is None for plan in plans)
    unknown = f" '?' means that {NOTHING_VARIES}." if is_unknown else ""
    return (
        f"With this many seeds, a true difference is found with probability {POWER:.0%} at p < {SIGNIFICANCE_LEVEL:g}, "
        "for two methods; the correction for more methods needs more. '–' means that the test set is too small: no "
        f"number of seeds is enough.{unknown}{rough}"
    )
