"""Is one method better than another? Differences over seeds and test examples, with intervals and p-values.

Two methods were trained with the same seeds and evaluated on the same examples. Another seed would give other models,
and another test set other examples, so the difference d varies with both. For seed s and example i, with effects of the
seed (u), of the example (v) and of both together (e):

    d_si = d + u_s + v_i + e_si

The variance of the mean difference is σ_u²/S + σ_v²/n + σ_e²/(S·n). An analysis of variance estimates its parts
(Searle, Casella & McCulloch 1992, ch. 4). The part of the seeds has few degrees of freedom and the part of the examples
has many, so the threshold of a t-test is the mean of their thresholds, weighted by their variances (Cochran & Cox 1957).
Satterthwaite's degrees of freedom are too many where seeds agree by chance: at the small levels that a correction for
eight methods needs, they find a difference between equal methods in 13 % of all columns. With few seeds, a bootstrap over
seeds finds too many differences, too.

A metric that is not a mean of scores (F1, BLEU) enters with the jackknife's pseudo-values of its examples (Tukey 1958).
Below `MIN_SEEDS` seeds, the variance between seeds is not known well enough. Then only the examples vary, and the
conclusion is about the trained models, not about the methods.

Units that all show the same difference have no variance, but three of them prove little. They are tested as if one more
had shown no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SIGNIFICANCE_LEVEL = 0.05
MIN_SEEDS = 5  # for a conclusion about methods
MIN_EXAMPLES = 30  # with fewer, the mean of right and wrong answers is far from a normal distribution
ROUNDING_ERROR = 1e-9  # scores in percent that differ by less are equal
Statistic = Callable[[np.ndarray, int], np.ndarray]  # maps column means (last axis) and the sample size to a number


@dataclass(frozen=True)
class Comparison:
    """The difference first − second, its 95 % interval, its two-sided p-value, and over what it was taken to vary.

    `varied` holds "seeds", "examples" or "clients". Without seeds, the conclusion is about these trained models alone.
    """

    difference: float
    low: float
    high: float
    p: float
    varied: tuple[str, ...]

    @property
    def is_about_methods(self) -> bool:
        return "seeds" in self.varied

    @property
    def is_significant(self) -> bool:
        return self.p < SIGNIFICANCE_LEVEL


class Estimate(NamedTuple):
    """A mean difference with the two parts of the variance of this mean. Arrays hold one case per entry.

    `between` is the part that more seeds reduce. `fixed` is the part that they do not reduce, because all seeds share the
    test examples. Each part was estimated with its own degrees of freedom.
    """

    difference: np.ndarray
    between: np.ndarray
    degrees: float
    fixed: np.ndarray
    fixed_degrees: float

    @property
    def variance(self) -> np.ndarray:
        variance: np.ndarray = self.between + self.fixed
        return variance

    @property
    def p(self) -> np.ndarray:
        """The two-sided p-value. Without variance, as of numbers that are counted, it is 1 or 0."""
        from scipy.special import stdtr

        error = np.sqrt(self.variance)
        ratio = np.divide(np.abs(self.difference), error, out=np.zeros(error.shape), where=error > 0)
        # The threshold lies between those of the two parts, so the p-value lies between theirs.
        ends = [
            np.log(np.maximum(2 * stdtr(degrees, -ratio), 1e-300)) for degrees in (self.degrees, self.fixed_degrees)
        ]
        low, high = np.minimum(*ends), np.maximum(*ends)
        for _ in range(30):
            middle = (low + high) / 2
            is_above = self._threshold(np.exp(middle)) > ratio
            low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
        without_variance = np.where(np.abs(self.difference) > 0, 0.0, 1.0)
        p: np.ndarray = np.where(error > 0, np.exp((low + high) / 2), without_variance)
        return p

    def margin(self) -> np.ndarray:
        """Return half the width of the interval."""
        margin: np.ndarray = self._threshold(SIGNIFICANCE_LEVEL) * np.sqrt(self.variance)
        return margin

    def _threshold(self, level: float | np.ndarray) -> np.ndarray:
        """Return how many standard errors make a difference significant at a two-sided level."""
        from scipy.special import stdtrit  # 200 times as fast as scipy.stats.t.isf, with the same result

        share = np.divide(self.fixed, self.variance, out=np.zeros(self.variance.shape), where=self.variance > 0)
        quantiles = [-stdtrit(degrees, level / 2) for degrees in (self.degrees, self.fixed_degrees)]
        threshold: np.ndarray = (1 - share) * quantiles[0] + share * quantiles[1]
        return threshold

    def compare(self, *varied: str) -> Comparison:
        """Return the comparison of a single case."""
        difference, margin = float(self.difference), float(self.margin())
        return Comparison(difference, difference - margin, difference + margin, float(self.p), varied)


class VarianceParts(NamedTuple):
    """Variances of a mean difference: between seeds, between examples, and of what depends on both.

    The first two contain the third, as mean squares of an analysis of variance do.
    """

    seeds: np.ndarray
    examples: np.ndarray
    residual: np.ndarray


def pseudo_values(rows: np.ndarray, statistic: Statistic | None) -> np.ndarray:
    """Return one value per example, whose mean is the number of the method up to the bias of the jackknife.

    `rows`: the columns of each example, (…, examples, columns). Without `statistic`, the first column is the score.
    """
    count = rows.shape[-2]
    if statistic is None or count < 2:
        scores: np.ndarray = rows[..., 0] if statistic is None else statistic(rows, 1)
        return scores
    means = rows.mean(-2, dtype=np.float64)
    without_each = (count * means[..., None, :] - rows) / (count - 1)
    values: np.ndarray = count * statistic(means, count)[..., None] - (count - 1) * statistic(without_each, count - 1)
    return values


def split_variance(values: np.ndarray, examples: np.ndarray) -> VarianceParts:
    """Analyze differences of the same examples under several seeds: `values` (…, seeds), `examples` (…, seeds, n)."""
    seeds, count = examples.shape[-2:]
    example_means, seed_means = examples.mean(-2, keepdims=True), examples.mean(-1, keepdims=True)
    residual = examples - example_means - seed_means + examples.mean((-2, -1), keepdims=True)
    freedom = max(1, (seeds - 1) * (count - 1))
    return VarianceParts(
        seeds=values.var(-1, ddof=1) / seeds,
        examples=example_means[..., 0, :].var(-1, ddof=1) / count,
        residual=(residual**2).sum((-2, -1)) / freedom / (seeds * count),
    )


def compare_crossed(values: np.ndarray, examples: np.ndarray) -> Estimate:
    """Compare two methods whose seeds were all evaluated on the same examples (see `split_variance`)."""
    seeds, count = examples.shape[-2:]
    parts, difference = split_variance(values, examples), values.mean(-1)
    fixed = np.maximum(parts.examples - parts.residual, 0.0)
    fixed = fixed + _missing_variance(difference, parts.seeds + fixed, count)
    return Estimate(difference, parts.seeds, seeds - 1, fixed, count - 1)


def compare_seeds(values: np.ndarray, shared_variance: float = 0.0, shared_degrees: float = np.inf) -> Estimate:
    """Compare two methods by the differences of their seeds, (…, seeds).

    `shared_variance` is a part of the variance that all seeds share, so that their differences do not show it.
    """
    seeds, difference = values.shape[-1], values.mean(-1)
    between = values.var(-1, ddof=1) / seeds
    between = between + _missing_variance(difference, between + shared_variance, seeds)
    return Estimate(difference, between, seeds - 1, np.full(between.shape, shared_variance), shared_degrees)


def compare_models(difference: float | np.ndarray, variance: float | np.ndarray, degrees: float) -> Estimate:
    """Compare trained models: only the examples vary, and no seed."""
    fixed = np.asarray(variance) + _missing_variance(np.asarray(difference), np.asarray(variance), degrees + 1)
    return Estimate(np.asarray(difference), np.zeros(fixed.shape), 1, fixed, degrees)


def compare_counts(difference: float) -> Estimate:
    """Compare numbers that are counted, such as bytes: they have no error."""
    return Estimate(np.asarray(difference), np.zeros(()), 1, np.zeros(()), 1)


def _missing_variance(difference: np.ndarray, variance: np.ndarray, units: float) -> np.ndarray:
    """Return the variance of a mean over units that all show the same difference, as if one more had shown none.

    It is 0 for units that vary.
    """
    missing: np.ndarray = np.where(variance < ROUNDING_ERROR**2, (difference / (units + 1)) ** 2, 0.0)
    return missing


def compare_examples(examples: np.ndarray) -> Estimate:
    """Compare two trained models by the differences of their examples, (…, n)."""
    count = examples.shape[-1]
    return compare_models(examples.mean(-1), examples.var(-1, ddof=1) / count, count - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of comparisons (Holm 1979)."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty(len(p))
    adjusted[order] = steps
    return [float(value) for value in adjusted]
