"""The audit of a run's privacy: exact statistics, and an attack on a run that memorizes its texts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.experiment.commands.canary_audit import judge_guesses
from motet.experiment.commands.privacy_audit import AUDIT_FILE, FIGURE_FILE, audit_privacy, format_audit
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe
from motet.privacy.dp_sum import PrivateSum
from motet.privacy.epsilon_bounds import coin_epsilon_bound, gaussian_epsilon
from motet.privacy.membership_inference import area_under_curve, infer_membership, lower_epsilon_bound


def test_the_area_under_the_curve_counts_pairs() -> None:
    members, others = np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0])
    pairs = [(m > o) + (m == o) / 2 for m in members for o in others]
    assert area_under_curve(members, others) == pytest.approx(np.mean(pairs))


def test_the_bound_of_a_perfect_attack_grows_with_the_number_of_texts() -> None:
    for count in (20, 100, 1000):
        miss = 1 - 0.025 ** (1 / count)  # the exact interval of 0 of `count`
        assert lower_epsilon_bound(count, count, 0, count, 0.0) == pytest.approx(math.log((1 - miss) / miss), abs=1e-5)
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


SETTINGS = [
    "rounds=2",
    "data.limit=80",
    "data.test_limit=40",
    "partition.clients=8",
    "transport.workers=0",
    "device=cpu",
]
NOISE = ["privacy.type=central", "privacy.clip=1.0", "privacy.noise=2.0"]


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "run"
    run_recipe(load_recipe("toy-classification", [*SETTINGS, *NOISE]), folder)
    return folder


def test_a_run_without_noise_is_attacked_and_the_result_is_written(tmp_path: Path) -> None:
    run_recipe(load_recipe("toy-classification", SETTINGS), tmp_path / "run")
    audit = audit_privacy(tmp_path / "run", batch=2)
    assert audit.claimed_epsilon is audit.canaries is None
    assert (audit.membership.members, audit.membership.non_members) == (20, 20)
    assert "The run claims no ε" in format_audit(audit)
    assert json.loads((tmp_path / "run" / AUDIT_FILE).read_text())["membership"]["auc"] == audit.membership.auc
    assert (tmp_path / "run" / FIGURE_FILE).stat().st_size > 5000
    assert audit.tokens is not None
    assert audit.tokens.from_update == 1.0 > audit.tokens.from_mean
    perfect = infer_membership(np.ones(99), np.zeros(99), 0.0, np.random.default_rng())
    assert "The claim is wrong" in format_audit(replace(audit, membership=perfect, claimed_epsilon=0.1))
    assert "the embeddings are not trained" in format_audit(replace(audit, tokens=None))


def test_canaries_measure_the_noise_of_a_run(noisy_run: Path) -> None:
    audit = audit_privacy(noisy_run, canaries=800)
    assert audit.canaries is not None
    assert audit.claimed_epsilon is not None
    assert 0 < audit.canaries.epsilon_bound < audit.claimed_epsilon
    assert audit.canaries.gaussian_epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) / 2, 1e-5), rel=0.5)
    assert audit.tokens is not None
    assert audit.tokens.from_noisy_mean is not None
    assert audit.tokens.from_noisy_mean < audit.tokens.from_update


def test_canaries_show_a_run_that_adds_too_little_noise(noisy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_noise = PrivateSum._add_noise
    monkeypatch.setattr(PrivateSum, "_add_noise", lambda self, v, factor, seed: add_noise(self, v, factor / 20, seed))
    audit = audit_privacy(noisy_run, canaries=400)
    assert audit.canaries is not None
    assert audit.canaries.epsilon_bound > (audit.claimed_epsilon or math.inf)
    assert "The claim is wrong" in format_audit(audit)


def test_the_bound_of_guessed_coins_is_below_the_true_epsilon() -> None:
    """Two normal distributions, 2 standard deviations apart, have ε = 10 at δ = 10⁻⁵."""
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, 2000).astype(bool)
    result = judge_guesses(coins, rng.normal(size=2000) + 2 * coins, 1e-5)
    assert 2.5 < result.epsilon_bound < gaussian_epsilon(2, 1e-5) == pytest.approx(10.0, abs=0.01)
    assert result.gaussian_epsilon == pytest.approx(gaussian_epsilon(2, 1e-5), rel=0.1)
    assert judge_guesses(coins, rng.normal(size=2000), 1e-5).epsilon_bound < 0.3
    assert coin_epsilon_bound(10, 0, 0, 1e-5, 0.05) == 0.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_a_folder_that_is_not_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        audit_privacy(tmp_path)
