"""The paired bootstrap finds what is there, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.report.significance import paired_bootstrap
from motet.tasks.sufficient_statistics import class_statistics, metric_from_statistics

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


@pytest.mark.parametrize("items", [1, 2, 3])
def test_so_it_is_among_clients_of_few_items(items: int) -> None:
    strata = np.repeat(np.arange(80), items)
    ps = [
        paired_bootstrap(*RNG.integers(0, 2, (2, 80 * items)), samples=400, seed=i, strata=strata).p for i in range(200)
    ]
    assert 0.005 <= np.mean(np.array(ps) < 0.05) <= 0.12


def test_of_one_item_nothing_is_sure() -> None:
    assert paired_bootstrap([1.0], [0.0]).p == 1.0


def test_items_that_come_again_under_other_seeds_say_nothing_new() -> None:
    first, second = (RNG.random((2, 300)) < [[0.66], [0.6]]).astype(float)
    once, strata = paired_bootstrap(first, second), np.repeat(np.arange(3), 300)
    thrice = paired_bootstrap(np.tile(first, 3), np.tile(second, 3), strata=strata, repeats=3)
    new = paired_bootstrap(np.tile(first, 3), np.tile(second, 3), strata=strata)
    widths = [found.high - found.low for found in (once, thrice, new)]
    assert widths == pytest.approx([widths[0], widths[0], widths[0] / 3**0.5], rel=0.1)


def test_a_statistic_of_ones_own_agrees_with_the_mean() -> None:
    first, second = RNG.normal(0.3, 1, 400), RNG.normal(0, 1, 400)
    ours = paired_bootstrap(first[:, None], second[:, None], samples=4000, statistic=lambda means: means[..., 0])
    theirs = paired_bootstrap(first, second, samples=4000)
    assert ours.difference == pytest.approx(theirs.difference)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)


@pytest.mark.parametrize("classes", [2, 12])  # few kinds of rows, and many
def test_a_statistic_of_counts_is_that_of_items_drawn_one_by_one(classes: int) -> None:
    from sklearn.metrics import f1_score

    truth = RNG.integers(0, classes, 150)
    sides = [np.where(RNG.random(150) < share, truth, RNG.integers(0, classes, 150)) for share in (0.7, 0.5)]

    def f1(said: np.ndarray, rows: np.ndarray) -> float:
        return float(f1_score(truth[rows], said[rows], average="weighted", zero_division=0))

    statistic = metric_from_statistics("f1_weighted", 3 * classes)
    found = paired_bootstrap(*(class_statistics(truth, said, classes) for said in sides), statistic=statistic)
    drawn = [f1(sides[0], rows) - f1(sides[1], rows) for rows in RNG.integers(0, 150, (250, 150))]
    assert found.difference == pytest.approx(f1(sides[0], np.arange(150)) - f1(sides[1], np.arange(150)))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.05)


def test_the_same_seed_gives_the_same_number_and_other_items_are_refused() -> None:
    first, second = RNG.normal(0, 1, 100), RNG.normal(0, 1, 100)
    assert paired_bootstrap(first, second, seed=3) == paired_bootstrap(first, second, seed=3)
    with pytest.raises(ConfigError, match="same items on both sides"):
        paired_bootstrap(first, second[:50])
