"""The paired bootstrap detects real differences and rejects chance."""

from __future__ import annotations

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.report.significance import paired_bootstrap
from motet.tasks.sufficient_statistics import class_statistics, metric_from_statistics

RNG = np.random.default_rng(5)


def test_equal_scores_are_no_difference() -> None:
    scores = RNG.integers(0, 2, 300)
    result = paired_bootstrap(scores, scores)
    assert (result.difference, result.low, result.high, result.p) == (0.0, 0.0, 0.0, 1.0)


def test_a_clear_difference_is_significant_and_a_small_one_is_not() -> None:
    worse = (RNG.random(1000) < 0.6).astype(float)
    better = np.where(RNG.random(1000) < 0.1, 1.0, worse)
    result = paired_bootstrap(better, worse)
    assert result.p < 0.001
    assert 0 < result.low < result.difference < result.high
    one_better = worse.copy()
    one_better[np.flatnonzero(worse == 0)[0]] = 1.0
    assert paired_bootstrap(one_better, worse).p > 0.2


def test_the_p_value_agrees_with_the_normal_approximation() -> None:
    from scipy.stats import norm

    differences = RNG.normal(0.05, 1.0, 2000)
    result = paired_bootstrap(differences, np.zeros(2000), samples=20_000)
    z = differences.mean() / (differences.std() / np.sqrt(2000))
    assert result.p == pytest.approx(2 * norm.sf(abs(z)), abs=0.02)


def test_five_percent_of_random_differences_are_significant() -> None:
    ps = [paired_bootstrap(*RNG.integers(0, 2, (2, 200)), samples=500, seed=i).p for i in range(200)]
    assert 0.01 <= np.mean(np.array(ps) < 0.05) <= 0.11


def test_groups_count_the_same_whatever_their_size() -> None:
    first, second = np.array([1.0, 1, 1, 1, 0]), np.array([0.0, 0, 0, 0, 1])
    assert paired_bootstrap(first, second, strata=[0, 0, 0, 0, 1]).difference == 0.0
    assert paired_bootstrap(first, second).difference == pytest.approx(0.6)


@pytest.mark.parametrize("examples", [1, 2, 3])
def test_five_percent_of_random_differences_are_significant_with_small_clients(examples: int) -> None:
    strata = np.repeat(np.arange(80), examples)
    scores = [RNG.integers(0, 2, (2, 80 * examples)) for _ in range(200)]
    ps = [paired_bootstrap(*pair, samples=400, seed=i, strata=strata).p for i, pair in enumerate(scores)]
    assert 0.005 <= np.mean(np.array(ps) < 0.05) <= 0.12


def test_a_single_example_is_never_significant() -> None:
    assert paired_bootstrap([1.0], [0.0]).p == 1.0


def test_repeated_examples_add_no_evidence() -> None:
    first, second = (RNG.random((2, 300)) < [[0.66], [0.6]]).astype(float)
    strata = np.repeat(np.arange(3), 300)
    once = paired_bootstrap(first, second)
    repeated = paired_bootstrap(np.tile(first, 3), np.tile(second, 3), strata=strata, repeats=3)
    independent = paired_bootstrap(np.tile(first, 3), np.tile(second, 3), strata=strata)
    widths = [result.high - result.low for result in (once, repeated, independent)]
    assert widths == pytest.approx([widths[0], widths[0], widths[0] / 3**0.5], rel=0.1)


def test_a_custom_statistic_agrees_with_the_mean() -> None:
    first, second = RNG.normal(0.3, 1, 400), RNG.normal(0, 1, 400)
    custom = paired_bootstrap(
        first[:, None], second[:, None], samples=4000, statistic=lambda means, count: means[..., 0]
    )
    mean = paired_bootstrap(first, second, samples=4000)
    assert custom.difference == pytest.approx(mean.difference)
    assert (custom.low, custom.high) == pytest.approx((mean.low, mean.high), abs=0.03)


@pytest.mark.parametrize("classes", [2, 12])  # few and many distinct rows
def test_a_statistic_of_counts_agrees_with_resampling_example_by_example(classes: int) -> None:
    from sklearn.metrics import f1_score

    truth = RNG.integers(0, classes, 150)
    predictions = [np.where(RNG.random(150) < share, truth, RNG.integers(0, classes, 150)) for share in (0.7, 0.5)]

    def f1(predicted: np.ndarray, rows: np.ndarray) -> float:
        return float(f1_score(truth[rows], predicted[rows], average="weighted", zero_division=0))

    statistic = metric_from_statistics("f1_weighted", 3 * classes)
    result = paired_bootstrap(*(class_statistics(truth, p, classes) for p in predictions), statistic=statistic)
    first, second = predictions
    differences = [f1(first, rows) - f1(second, rows) for rows in RNG.integers(0, 150, (250, 150))]
    assert result.difference == pytest.approx(f1(first, np.arange(150)) - f1(second, np.arange(150)))
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])), abs=0.05)


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = RNG.normal(0, 1, 100), RNG.normal(0, 1, 100)
    assert paired_bootstrap(first, second, seed=3) == paired_bootstrap(first, second, seed=3)


def test_scores_on_different_examples_are_rejected() -> None:
    with pytest.raises(ConfigError, match="scores on the same examples"):
        paired_bootstrap(np.zeros(100), np.zeros(50))
