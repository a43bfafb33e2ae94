"""The audit of a run's privacy: exact statistics, and an attack on a run that memorizes its texts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.experiment.commands.privacy_audit import audit_privacy, format_audit
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe
from motet.privacy.membership_inference import area_under_curve, infer_membership, lower_epsilon_bound


def test_the_area_under_the_curve_counts_pairs() -> None:
    members, others = np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0])
    pairs = [(m > o) + (m == o) / 2 for m in members for o in others]
    assert area_under_curve(members, others) == pytest.approx(np.mean(pairs))


def test_the_bound_of_a_perfect_attack_grows_with_the_number_of_texts() -> None:
    for count in (20, 100, 1000):
        miss = 1 - 0.025 ** (1 / count)  # the exact interval of 0 of `count`
        assert lower_epsilon_bound(count, count, 0, count, 0.0) == pytest.approx(math.log((1 - miss) / miss))
    assert lower_epsilon_bound(50, 100, 50, 100, 0.0) == 0.0
    assert lower_epsilon_bound(0, 100, 0, 100, 0.0) == 0.0


def test_the_bound_is_below_the_true_epsilon_of_randomized_response() -> None:
    """Randomized response at ε = 1 tells the truth with probability e/(1 + e). An attack can prove at most ε."""
    epsilon, rng, bounds = 1.0, np.random.default_rng(0), []
    for _ in range(20):
        truth = np.repeat([1.0, 0.0], 1000)
        flips = rng.random(2000) > math.exp(epsilon) / (1 + math.exp(epsilon))
        answers = np.where(flips, 1 - truth, truth)
        bounds.append(infer_membership(answers[:1000], answers[1000:], 0.0, rng).epsilon_bound)
    assert sum(bound > epsilon for bound in bounds) <= 2
    assert np.mean(bounds) > 0.5 * epsilon


def test_an_attack_without_information_proves_nothing() -> None:
    rng = np.random.default_rng(1)
    result = infer_membership(rng.normal(size=1000), rng.normal(size=1000), 1e-5, rng)
    assert result.epsilon_bound < 0.3
    assert result.auc == pytest.approx(0.5, abs=0.06)


def test_the_model_of_a_run_is_attacked_and_the_result_is_written(tmp_path: Path) -> None:
    settings = ["rounds=1", "data.limit=60", "data.test_limit=40", "partition.clients=2", "transport.workers=0"]
    run_recipe(load_recipe("toy-classification", [*settings, "device=cpu"]), tmp_path / "run")
    result, claimed = audit_privacy(tmp_path / "run")
    assert claimed is None
    assert (result.members, result.non_members) == (30, 20)
    assert "The run claims no ε" in format_audit(result, claimed)
    assert json.loads((tmp_path / "run" / "privacy_audit.json").read_text())["auc"] == result.auc
    assert "The claim is wrong" in format_audit(
        infer_membership(np.ones(99), np.zeros(99), 0.0, np.random.default_rng()), 0.1
    )


def test_a_folder_that_is_not_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        audit_privacy(tmp_path)
