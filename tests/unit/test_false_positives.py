"""The test of two methods finds a difference where there is none in at most 5 % of all experiments, whatever seeds do.

Each experiment trains two equal methods with five seeds and evaluates them on the same texts. Each text has a
difficulty, each method its own strengths and weaknesses on texts, and each seed a deviation in points.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from motet.benchmark.claim_significance import combine_leads
from motet.report.client_bootstrap import compare_clients, worst_tenth
from motet.report.paired_scores import PairedRuns, SharedUnits
from motet.report.significance import Statistic, compare_crossed, holm, pseudo_values
from motet.tasks.metric_statistics import metric_from_statistics

SEEDS, TEXTS, EXPERIMENTS = 5, 150, 400
DEVIATIONS = (0.0, 0.4, 1.0, 2.4)  # between seeds, in points
Draw = tuple[np.ndarray, Statistic | None]  # rows (experiments, methods, seeds, texts, columns), and the metric


def draw_quality(rng: np.random.Generator, experiments: int, methods: int) -> np.ndarray:
    """Return the quality of each answer, standard normal: (experiments, methods, seeds, texts)."""
    text = rng.normal(size=(experiments, 1, 1, TEXTS))
    strengths = rng.normal(size=(experiments, methods, 1, TEXTS))
    chance = rng.normal(size=(experiments, methods, SEEDS, TEXTS))
    quality: np.ndarray = 0.8 * text + 0.4 * strengths + 0.2**0.5 * chance
    return quality


def draw_seed_effects(
    rng: np.random.Generator, experiments: int, methods: int, deviation: float, lead: float
) -> np.ndarray:
    """Return the effect of each seed in shares of 1; the first method has a lead."""
    effects = deviation / 100 * rng.normal(size=(experiments, methods, SEEDS, 1))
    effects[:, 0] += lead / 100
    return effects


def accuracy(rng: np.random.Generator, quality: np.ndarray, effects: np.ndarray) -> Draw:
    threshold = norm.ppf(0.7)  # 70 % are right
    return (quality < threshold + effects / norm.pdf(threshold))[..., None].astype(np.float64), None


def f1(rng: np.random.Generator, quality: np.ndarray, effects: np.ndarray) -> Draw:
    is_right = accuracy(rng, quality, effects)[0][..., 0].astype(bool)
    truth = rng.random((len(quality), 1, 1, TEXTS)) < 0.4
    truth = np.broadcast_to(truth, is_right.shape)
    predicted = np.where(is_right, truth, ~truth)
    columns = [truth & predicted, ~truth & ~predicted, predicted, ~predicted, truth, ~truth]
    return np.stack(columns, axis=-1).astype(np.float64), metric_from_statistics("f1", 6)


def bleu(rng: np.random.Generator, quality: np.ndarray, effects: np.ndarray) -> Draw:
    lengths = rng.integers(6, 20, (len(quality), 1, 1, TEXTS))
    totals = np.stack([np.broadcast_to(lengths - n, quality.shape) for n in range(4)], axis=-1)
    precision = np.clip(0.5 + 0.15 * quality + effects, 0.02, 0.98)
    share = np.stack([precision ** (1 + n / 2) for n in range(4)], axis=-1)
    noise = rng.normal(size=share.shape) * np.sqrt(totals * share * (1 - share))  # a binomial draw, but quick
    matches = np.clip(np.rint(totals * share + noise), 0, totals)
    both_lengths = np.repeat(totals[..., :1], 2, axis=-1)
    before, after = np.zeros((*quality.shape, 3)), np.zeros((*quality.shape, 2))  # ROUGE and METEOR
    rows = np.concatenate([before, matches, totals, both_lengths, after], axis=-1)
    return rows, metric_from_statistics("bleu", rows.shape[-1])


def rouge(rng: np.random.Generator, quality: np.ndarray, effects: np.ndarray) -> Draw:
    return np.clip(0.4 + 0.2 * quality + effects, 0.0, 1.0)[..., None], None


def find_differences(
    metric: Callable[..., Draw], deviation: float, lead: float = 0.0, experiments: int = EXPERIMENTS
) -> float:
    """Return the share of experiments in which two methods differ significantly."""
    rng = np.random.default_rng(11)
    rejected = []
    for _ in range(experiments // 100):
        effects = draw_seed_effects(rng, 100, 2, deviation, lead)
        rows, statistic = metric(rng, draw_quality(rng, 100, 2), effects)
        examples = pseudo_values(rows, statistic)
        values = statistic(rows.mean(-2), TEXTS) if statistic else rows.mean(-2)[..., 0]
        estimate = compare_crossed(values[:, 0] - values[:, 1], examples[:, 0] - examples[:, 1])
        rejected.append(estimate.p < 0.05)
    return float(np.mean(rejected))


@pytest.mark.parametrize("metric", [accuracy, f1, bleu, rouge])
def test_equal_methods_differ_in_at_most_five_percent_of_all_experiments(metric: Callable[..., Draw]) -> None:
    rates = {deviation: find_differences(metric, deviation) for deviation in DEVIATIONS}
    power = {lead: find_differences(metric, 1.0, lead, 100) for lead in (2.0, 5.0)}
    print(f"{metric.__name__}: false positives {rates}; power for a lead of 2 and 5 points: {power}")
    assert all(0.015 <= rate <= 0.065 for rate in rates.values()), rates
    assert power[2.0] < power[5.0] and power[5.0] > 0.3, power


@pytest.mark.parametrize("deviation", [1.0, 8.0])  # smaller and larger than the error from the texts
def test_the_best_of_eight_equal_methods_stands_out_in_at_most_five_percent_of_all_columns(deviation: float) -> None:
    rng = np.random.default_rng(3)
    effects = draw_seed_effects(rng, 300, 8, deviation, 0.0)
    examples = accuracy(rng, draw_quality(rng, 300, 8), effects)[0][..., 0]
    differences = {(a, b): examples[:, a] - examples[:, b] for a, b in combinations(range(8), 2)}
    p_values = np.stack([compare_crossed(d.mean(-1), d).p for d in differences.values()], axis=-1)
    best = examples.mean((-2, -1)).argmax(1)
    with_best = [[i for i, pair in enumerate(differences) if b in pair] for b in best]
    unadjusted = [min(p[pairs]) < 0.05 for p, pairs in zip(p_values, with_best, strict=True)]
    assert np.mean([min(holm(p)) < 0.05 for p in p_values]) <= 0.07
    assert np.mean(unadjusted) > 0.3, "without a correction, the best stands out often"


def test_a_bound_differs_from_the_best_of_seven_equal_methods_in_at_most_five_percent_of_all_columns() -> None:
    """The best method is chosen by looking, so that all pairs of the bound (the last row) and a method count."""
    rng = np.random.default_rng(4)
    effects = draw_seed_effects(rng, 150, 8, 1.0, 0.0)
    examples = accuracy(rng, draw_quality(rng, 150, 8), effects)[0][..., 0]
    differences = [examples[:, 7] - examples[:, method] for method in range(7)]
    p_values = np.stack([compare_crossed(d.mean(-1), d).p for d in differences], axis=-1)
    best = examples[:, :7].mean((-2, -1)).argmax(1)
    assert np.mean([holm(p)[b] < 0.05 for p, b in zip(p_values, best, strict=True)]) <= 0.07
    assert np.mean([p[b] < 0.05 for p, b in zip(p_values, best, strict=True)]) > 0.07, "without a correction"


def test_a_claim_about_three_shared_clients_does_not_take_them_for_many_texts() -> None:
    """The same three clients in all seeds are three observations of the difference between clients."""
    rng, owners = np.random.default_rng(6), [np.repeat(np.arange(3), 10)] * SEEDS
    decided = []
    for _ in range(400):
        examples = list(np.repeat(rng.normal(size=3) + rng.normal(0, 0.5, (SEEDS, 3)), 10, axis=1))
        values = np.array([run.mean() for run in examples])
        pairs = PairedRuns(values, examples, owners, SharedUnits(examples=True, clients=True))
        lead = combine_leads([[pairs]], is_counted=False)
        decided.append(lead is not None and float(lead.estimate.p) < 0.05)
    assert 0.015 <= np.mean(decided) <= 0.07


@pytest.mark.parametrize(("seeds", "clients"), [(1, 20), (1, 60), (3, 30), (5, 20)])
def test_the_worst_tenth_of_equal_methods_rarely_differs(seeds: int, clients: int) -> None:
    """Clients differ by 10 points, methods by 3 points on a client, and seeds by 3 points."""
    rng, differs = np.random.default_rng(7), []
    for _ in range(200):
        level, strengths = rng.normal(70, 10, clients), rng.normal(0, 3, (2, 1, clients))
        first, second = level + strengths + rng.normal(0, 3, (2, seeds, clients))
        result = compare_clients([*first], [*second], worst_tenth, shares_clients=True)
        differs.append(result is not None and result.is_significant)
    assert np.mean(differs) <= 0.07


def test_a_large_lead_of_the_worst_tenth_is_significant() -> None:
    first, second = np.random.default_rng(8).normal([[70], [50]], 10, (2, 200))
    result = compare_clients([first], [second], worst_tenth, shares_clients=True)
    assert result is not None and result.is_significant
