"""Differences between methods vary with seeds, examples and clients; intervals and p-values count what applies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from motet.core.errors import ConfigError
from motet.experiment.loop.scores import score_spread
from motet.report.client_bootstrap import client_interval, client_spread, compare_clients, worst_tenth
from motet.report.paired_scores import RunScores, SharedUnits, compare_methods, score_run
from motet.report.power import compute_power, count_needed_seeds
from motet.report.significance import (
    compare_counts,
    compare_crossed,
    compare_examples,
    compare_seeds,
    holm,
    pseudo_values,
)
from motet.tasks.metric_statistics import class_statistics, metric_from_statistics

RNG = np.random.default_rng(5)
SAME_TEXTS = SharedUnits(examples=True)


def runs(examples: np.ndarray, owners: np.ndarray | None = None) -> list[RunScores]:
    """Return one run per row of scores."""
    ids = np.zeros(examples.shape[1], int) if owners is None else owners
    means = [np.mean([row[ids == owner].mean() for owner in np.unique(ids)]) for row in examples]
    return [score_run(float(mean), row[:, None], ids, None, 1.0) for mean, row in zip(means, examples, strict=True)]


def test_equal_scores_are_no_difference() -> None:
    scores = RNG.integers(0, 2, (5, 300)).astype(float)
    result = compare_methods(runs(scores), runs(scores), SAME_TEXTS)
    assert result is not None
    assert (result.difference, result.low, result.high, result.p) == (0.0, 0.0, 0.0, 1.0)


def test_seeds_that_all_differ_by_the_same_leave_only_the_examples_to_vary() -> None:
    first, second = np.tile(RNG.normal(0.1, 1, 200), (5, 1)), np.tile(RNG.normal(0, 1, 200), (5, 1))
    result = compare_methods(runs(first), runs(second), SAME_TEXTS)
    assert result is not None
    assert result.p == pytest.approx(ttest_rel(first[0], second[0]).pvalue, rel=1e-6)


def test_examples_that_all_agree_leave_only_the_seeds_to_vary() -> None:
    effects = RNG.normal(0.2, 1, 6)
    estimate = compare_crossed(effects, np.tile(effects[:, None], (1, 50)))
    assert float(estimate.p) == pytest.approx(ttest_1samp(effects, 0).pvalue)
    assert float(compare_seeds(effects).p) == pytest.approx(ttest_1samp(effects, 0).pvalue)


def test_fewer_than_five_seeds_are_about_the_trained_models() -> None:
    """A deviation between seeds that is larger than the difference does not matter for the models at hand."""
    first = np.tile(RNG.normal(0, 0.1, 100), (5, 1)) + np.array([3.0, -2.5, 2.5, -2.0, 0.0])[:, None]
    second = np.zeros((5, 100))
    few, many = (compare_methods(runs(first[:n]), runs(second[:n]), SAME_TEXTS) for n in (4, 5))
    assert few is not None and few.varied == ("examples",) and few.is_significant
    assert many is not None and many.varied == ("seeds", "examples") and not many.is_significant
    assert compare_methods([RunScores(1.0)] * 4, [RunScores(0.5)] * 4, SAME_TEXTS) is None


def test_shared_clients_vary_instead_of_their_examples() -> None:
    """All examples of a client agree, so that there are five observations and not a hundred."""
    owners = np.repeat(np.arange(5), 20)
    first = np.tile(RNG.normal(0.5, 1, 5)[owners], (5, 1)) + RNG.normal(0, 0.01, (5, 1))
    zeros = np.zeros_like(first)
    by_client = compare_methods(runs(first, owners), runs(zeros, owners), SharedUnits(examples=True, clients=True))
    by_example = compare_methods(runs(first), runs(zeros), SAME_TEXTS)
    assert by_client is not None and by_example is not None
    assert by_client.varied == ("seeds", "clients")
    assert by_client.high - by_client.low > 3 * (by_example.high - by_example.low)


def test_clients_count_the_same_whatever_their_size() -> None:
    owners = np.array([0, 0, 0, 0, 1])
    first, second = np.array([[1.0, 1, 1, 1, 0]]), np.array([[0.0, 0, 0, 0, 1]])
    by_client = compare_methods(runs(first, owners), runs(second, owners), SharedUnits(examples=False))
    together = compare_methods(runs(first), runs(second), SharedUnits(examples=False))
    assert by_client is not None and by_client.difference == 0.0
    assert together is not None and together.difference == pytest.approx(0.6)


def test_repeated_examples_add_no_evidence() -> None:
    """Three seeds divide the same texts over other clients: one text evaluated three times is still one text."""
    first, second = (RNG.random((2, 1, 300)) < [[[0.66]], [[0.6]]]).astype(float)
    owners = np.repeat(np.arange(3), 100)
    widths = []
    for repeats, shared in ((1, True), (3, True), (3, False)):
        pair = [runs(np.tile(scores, (repeats, 1)), owners) for scores in (first, second)]
        result = compare_methods(*pair, SharedUnits(examples=shared))
        assert result is not None
        widths.append(result.high - result.low)
    assert widths == pytest.approx([widths[0], widths[0], widths[0] / 3**0.5])


@pytest.mark.parametrize("examples", [1, 2, 3])
def test_five_percent_of_random_differences_are_significant_with_small_clients(examples: int) -> None:
    owners = np.repeat(np.arange(80), examples)
    results = [
        compare_methods(*(runs(side[None], owners) for side in RNG.normal(size=(2, len(owners)))), SAME_TEXTS)
        for _ in range(200)
    ]
    assert 0.005 <= np.mean([r is not None and r.is_significant for r in results]) <= 0.12


@pytest.mark.parametrize("classes", [2, 12])
def test_pseudo_values_of_an_f1_agree_with_resampling_example_by_example(classes: int) -> None:
    truth = RNG.integers(0, classes, 400)
    predictions = [np.where(RNG.random(400) < share, truth, RNG.integers(0, classes, 400)) for share in (0.7, 0.5)]
    statistic = metric_from_statistics("f1_weighted", 3 * classes)
    assert statistic is not None
    first, second = (class_statistics(truth, p, classes).astype(float) for p in predictions)
    estimate = compare_examples(pseudo_values(first, statistic) - pseudo_values(second, statistic))
    draws = [RNG.integers(0, 400, 400) for _ in range(400)]
    resampled = [statistic(first[rows].mean(0), 400) - statistic(second[rows].mean(0), 400) for rows in draws]
    assert float(estimate.variance) ** 0.5 == pytest.approx(np.std(resampled), rel=0.15)


def test_holm_adjusts_the_smallest_p_value_most_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_the_worst_tenth_and_the_spread_have_intervals() -> None:
    scores = [RNG.normal(70, 5, 50) for _ in range(5)]
    spread = score_spread(list(scores[0]))
    assert (spread["worst_decile"], spread["std"]) == (worst_tenth(scores[0]), client_spread(scores[0]))
    for statistic in (worst_tenth, client_spread):
        interval = client_interval(scores, statistic, shares_clients=False)
        assert interval is not None
        assert interval[0] < np.mean([statistic(run) for run in scores]) < interval[1]
    assert client_interval([np.array([1.0])], worst_tenth, shares_clients=False) is None


def test_a_method_that_lifts_only_the_worst_clients_is_significantly_fairer() -> None:
    before = [RNG.normal(70, 5, 50) for _ in range(5)]
    after = [np.maximum(run, 66 + RNG.normal(0, 0.3)) for run in before]
    worst = compare_clients(after, before, worst_tenth, shares_clients=False)
    spread = compare_clients(after, before, client_spread, shares_clients=False)
    assert worst is not None and worst.low > 0 and worst.varied == ("seeds", "clients")
    assert spread is not None and spread.high < 0
    one_run = compare_clients(after[:1], before[:1], worst_tenth, shares_clients=True)
    assert one_run is not None and one_run.varied == ("clients",)


def test_the_needed_seeds_grow_with_the_deviation_and_end_where_the_test_set_is_too_small() -> None:
    counts = [count_needed_seeds(1.0, deviation**2, 0.0) for deviation in (0.2, 1.0, 2.0)]
    assert counts[0] == 5 and counts[0] < counts[1] < counts[2]  # type: ignore[operator]
    assert counts[1] == 10, "a textbook number: a paired t-test of one deviation, power 0.8"
    assert count_needed_seeds(1.0, 1.0, fixed_variance=0.5**2) is None
    assert compute_power(0.0, 5, 1.0, 0.0) == pytest.approx(0.025)


def test_scores_on_different_examples_or_seeds_are_rejected() -> None:
    with pytest.raises(ConfigError, match="scores on the same examples"):
        compare_methods(runs(np.zeros((5, 100))), runs(np.zeros((5, 50))), SAME_TEXTS)
    with pytest.raises(ConfigError, match="the same seeds"):
        compare_methods(runs(np.zeros((5, 10))), runs(np.zeros((4, 10))), SAME_TEXTS)


@pytest.mark.parametrize(("count", "is_significant"), [(2, False), (3, False), (8, True), (500, True)])
def test_examples_that_all_differ_are_evidence_by_their_number(count: int, is_significant: bool) -> None:
    """One model has all examples right and the other all wrong: no variance, but three examples prove little."""
    owners = np.zeros(count, int)
    result = compare_methods(runs(np.ones((1, count)), owners), runs(np.zeros((1, count)), owners), SAME_TEXTS)
    assert result is not None
    assert result.is_significant is is_significant
    assert (result.low > 0) is is_significant, "the interval agrees with the p-value"


def test_equal_differences_of_five_seeds_do_not_survive_every_correction() -> None:
    """A count of rounds is often equal. With a p-value of 0, it would stay significant among any number of methods."""
    estimate = compare_seeds(np.array([0.3, 0.1 + 0.2, 0.3, 0.3, 0.3]))
    assert 0.001 < float(estimate.p) < 0.05
    assert float(estimate.difference) > float(estimate.margin())
    assert float(compare_counts(0.3).p) == 0.0, "bytes have no error"
    many = compare_crossed(np.full(5, 100.0), np.full((5, 400), 100.0))
    assert float(many.p) < 1e-6, "all of 400 examples"
