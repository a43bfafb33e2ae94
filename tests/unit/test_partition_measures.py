"""Heterogeneity measures, compared with SciPy and with numbers computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, gaussian_kde

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.partitions import label, natural, uniform
from motet.partitions.measures import gini, js_distances, measure_partition, order_by_distance, row_entropies
from motet.partitions.pseudo_labels import label_trait
from motet.report.figure_files import new_figure, save_figure
from motet.report.partition_plots import kernel_density


def test_distances_and_entropies_match_scipy() -> None:
    ratios = np.random.default_rng(0).dirichlet(np.full(6, 0.3), size=9)
    ratios[3] = [1, 0, 0, 0, 0, 0]
    distances = js_distances(ratios)
    expected = [[jensenshannon(p, q) for q in ratios] for p in ratios]
    assert distances == pytest.approx(np.nan_to_num(np.array(expected)), abs=1e-7)
    assert row_entropies(ratios) == pytest.approx([entropy(p) for p in ratios])
    assert (np.diff(distances.sum(1)[order_by_distance(distances)]) >= 0).all()


@pytest.mark.parametrize(
    ("sizes", "expected"), [([5, 5, 5], 0.0), ([0, 0, 0, 12], 0.75), ([1, 2, 3, 4], 0.25), ([1, 3], 0.25), ([0], 0.0)]
)
def test_gini_coefficient(sizes: list[int], expected: float) -> None:
    assert gini(np.array(sizes)) == pytest.approx(expected)


def test_label_skew_differs_from_chance_and_a_uniform_partition_does_not() -> None:
    corpus = toy_classification(train=400, test=200)
    trait = label_trait(corpus)
    skewed, balanced = (
        measure_partition(p, corpus, trait, Seed(0))
        for p in (label(corpus, Seed(1), 8, 0.3), uniform(corpus, Seed(1), 8))
    )
    chance = measure_partition(label(corpus, Seed(1), 8, 0.3), corpus, trait, Seed(0), at_random=True)
    assert skewed.js_distance is not None
    assert balanced.js_distance is not None
    assert chance.js_distance is not None
    assert skewed.js_distance > 0.4
    assert max(balanced.js_distance, chance.js_distance) < 0.2
    assert skewed.label_entropy is not None
    assert balanced.label_entropy is not None
    assert skewed.label_entropy < 0.8 * balanced.label_entropy
    assert skewed.vocabulary_overlap < balanced.vocabulary_overlap


def test_clients_without_common_words_have_no_overlap() -> None:
    columns = {"text": ["red green", "red", "blue", "blue grey", "red green", "blue"], "client": list("aabbab")}
    corpus = Corpus("corpus", "lm", columns, 4)
    measures = measure_partition(natural(corpus, Seed(0)), corpus, None, Seed(0))
    assert (measures.vocabulary_overlap, measures.js_distance, measures.size_gini) == (0.0, None, 0.0)
    assert set(measures.to_dict()) == {"size_gini", "vocabulary_overlap"}


def test_kernel_density_integrates_to_one_and_matches_scipy_far_from_zero() -> None:
    values = np.random.default_rng(0).normal(500, 40, 300)
    grid = np.linspace(0, 1000, 2000)
    curve = kernel_density(values, grid)
    assert np.trapezoid(curve, grid) == pytest.approx(1, abs=1e-3)
    assert curve == pytest.approx(gaussian_kde(values)(grid), abs=0.12 * curve.max())
    near_zero = kernel_density(np.random.default_rng(0).exponential(30, 300), grid)
    assert np.trapezoid(near_zero, grid) == pytest.approx(1, abs=1e-2)


def test_dollars_in_names_are_no_formulas(tmp_path: Path) -> None:
    """matplotlib once failed at a label such as this one."""
    figure, (panel,) = new_figure()
    panel.set_title(r"$\frac{$")
    panel.set_xticks([0, 1], [r"$\foo$ to $5", "b"])
    panel.plot([0, 1], [0, 1], label=r"$\x$")
    panel.legend()
    save_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
