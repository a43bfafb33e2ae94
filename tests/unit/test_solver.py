"""Local training: batches, steps, learning rates, and options that are rejected."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.learning.solver import Solver


def test_an_epoch_contains_every_example_once_with_a_short_last_batch() -> None:
    batches = Solver(batch=4, epochs=2).draw_batches(10, np.random.default_rng(0))
    assert [len(b) for b in batches] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate(batches[:3]).tolist()) == list(range(10))
    assert np.concatenate(batches[:3]).tolist() != np.concatenate(batches[3:]).tolist()


def test_a_number_of_steps_repeats_the_data_as_needed() -> None:
    solver = Solver(batch=4, steps=5)
    assert [len(b) for b in solver.draw_batches(6, np.random.default_rng(0))] == [4, 2, 4, 2, 4]
    assert solver.num_steps(6) == 5


def test_without_examples_there_are_no_steps() -> None:
    solver = Solver(batch=4, steps=5)
    assert solver.num_steps(0) == 0
    assert solver.draw_batches(0, np.random.default_rng(0)) == []


def test_without_shuffling_batches_follow_the_order_of_the_data() -> None:
    batches = Solver(batch=3, shuffle=False).draw_batches(7, np.random.default_rng(0))
    assert np.concatenate(batches).tolist() == list(range(7))


def test_the_learning_rate_rises_in_the_warmup_and_then_falls() -> None:
    solver = Solver(lr=1.0, warmup=0.06)
    rates = [solver.learning_rate_at(step, 100) for step in range(100)]
    peak = math.ceil(0.06 * 100) - 1
    assert rates[peak] == 1.0
    assert rates[0] == pytest.approx(1 / 6)
    assert all(a < b for a, b in itertools.pairwise(rates[: peak + 1]))
    assert all(a > b for a, b in itertools.pairwise(rates[peak:]))
    assert 0 < rates[-1] < 0.02


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_every_step_of_a_short_training_has_a_positive_rate(steps: int) -> None:
    assert all(Solver(lr=1.0).learning_rate_at(step, steps) > 0 for step in range(steps))


def test_the_default_learning_rate_depends_on_the_optimizer() -> None:
    assert Solver(optimizer="sgd").learning_rate == 0.1
    assert Solver(optimizer="adamw").learning_rate == 5e-5
    assert Solver(lr=3.0).learning_rate == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "solver.epochs is 0; it must be at least 1"),
        ({"batch": 0}, "solver.batch is 0"),
        ({"steps": 0}, "solver.steps is 0"),
        ({"warmup": 1.5}, "solver.warmup is 1.5"),
        ({"lr": float("nan")}, "solver.lr is nan"),
        ({"momentum": 1.0}, "solver.momentum is 1.0; it must be a number from 0 to below 1"),
        ({"weight_decay": -0.1}, "solver.weight_decay is -0.1; it must be a number >= 0"),
        ({"clip": float("nan")}, "solver.clip is nan; it must be a number >= 0"),
        ({"proximal_mu": -1.0}, "mu .* is -1; it must be a finite number >= 0"),
        ({"lr": "1e-3"}, "solver.lr is '1e-3'; expected a number. Write it without quotes."),
        ({"batch": 8.0}, "solver.batch is 8.0; expected a whole number"),
        ({"optimizer": "adam"}, "solver.optimizer is 'adam'; it must be one of sgd, adamw"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Solver(**options)


@pytest.mark.parametrize("name", [field.name for field in fields(Solver)])
def test_every_option_has_a_type(name: str) -> None:
    with pytest.raises(ConfigError, match=f"solver.{name} is 'much'; (expected|it must be one of)"):
        Solver(**{name: "much"})  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_step_after_the_end_of_a_schedule_has_rate_0(schedule: Any) -> None:
    """An algorithm may pass a horizon that is too short. A negative rate would climb the loss."""
    assert Solver(schedule=schedule).learning_rate_at(12, 10) == 0


def test_a_cosine_schedule_warms_up_and_falls_along_half_a_cosine() -> None:
    solver = Solver(lr=1.0, schedule="cosine", warmup=0.2)
    rates = [solver.learning_rate_at(step, 10) for step in range(10)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[2:] == [pytest.approx((1 + math.cos(math.pi * k / 9)) / 2) for k in range(1, 9)]
    assert all(rate > 0 for rate in rates), "every step counts"
