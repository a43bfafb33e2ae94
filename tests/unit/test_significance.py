"""The paired bootstrap finds what is there, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.report.significance import paired_bootstrap

RNG = np.random.default_rng(5)


def test_the_same_answers_are_no_difference() -> None:
    right = RNG.integers(0, 2, 300)
    found = paired_bootstrap(right, right)
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_a_clear_difference_is_significant_and_a_small_one_is_not() -> None:
    worse = (RNG.random(1000) < 0.6).astype(float)
    better = np.where(RNG.random(1000) < 0.1, 1.0, worse)
    found = paired_bootstrap(better, worse)
    assert found.p < 0.001
    assert 0 < found.low < found.difference < found.high
    nearly = worse.copy()
    nearly[np.flatnonzero(worse == 0)[0]] = 1.0
    assert paired_bootstrap(nearly, worse).p > 0.2


def test_the_p_value_is_that_of_the_normal_approximation() -> None:
    from scipy.stats import norm

    differences = RNG.normal(0.05, 1.0, 2000)
    found = paired_bootstrap(differences, np.zeros(2000), samples=20_000)
    z = differences.mean() / (differences.std() / np.sqrt(2000))
    assert found.p == pytest.approx(2 * norm.sf(abs(z)), abs=0.02)


def test_chance_is_called_significant_about_as_often_as_it_should() -> None:
    ps = [paired_bootstrap(*RNG.integers(0, 2, (2, 200)), samples=500, seed=i).p for i in range(200)]
    assert 0.01 <= np.mean(np.array(ps) < 0.05) <= 0.11


def test_groups_count_alike_however_many_items_they_have() -> None:
    first, second = np.array([1.0, 1, 1, 1, 0]), np.array([0.0, 0, 0, 0, 1])
    assert paired_bootstrap(first, second, strata=[0, 0, 0, 0, 1]).difference == 0.0
    assert paired_bootstrap(first, second).difference == pytest.approx(0.6)


def test_a_statistic_of_ones_own_agrees_with_the_mean() -> None:
    first, second = RNG.normal(0.3, 1, 400), RNG.normal(0, 1, 400)
    ours = paired_bootstrap(first, second, samples=4000, statistic=lambda rows: float(rows.mean()))
    theirs = paired_bootstrap(first, second, samples=4000)
    assert ours.difference == pytest.approx(theirs.difference)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_the_same_seed_gives_the_same_number_and_other_items_are_refused() -> None:
    first, second = RNG.normal(0, 1, 100), RNG.normal(0, 1, 100)
    assert paired_bootstrap(first, second, seed=3) == paired_bootstrap(first, second, seed=3)
    with pytest.raises(ConfigError, match="same items on both sides"):
        paired_bootstrap(first, second[:50])
