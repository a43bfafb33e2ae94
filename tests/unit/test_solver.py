from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.learning.solver import Solver


def test_an_epoch_sees_every_example_once_and_keeps_the_short_batch() -> None:
    order = Solver(batch=4, epochs=2).draw_batches(10, np.random.default_rng(0))
    assert [len(b) for b in order] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate(order[:3]).tolist()) == list(range(10))
    assert np.concatenate(order[:3]).tolist() != np.concatenate(order[3:]).tolist()


def test_steps_go_round_the_data_as_often_as_needed() -> None:
    solver = Solver(batch=4, steps=5)
    order = solver.draw_batches(6, np.random.default_rng(0))
    assert [len(b) for b in order] == [4, 2, 4, 2, 4]
    assert solver.num_steps(6) == 5
    assert solver.num_steps(0) == 0
    assert solver.draw_batches(0, np.random.default_rng(0)) == []


def test_without_shuffling_the_order_is_that_of_the_data() -> None:
    order = Solver(batch=3, shuffle=False).draw_batches(7, np.random.default_rng(0))
    assert np.concatenate(order).tolist() == list(range(7))


def test_the_rate_rises_over_the_warm_up_and_falls_to_the_end() -> None:
    solver = Solver(lr=1.0, warmup=0.06)
    rates = [solver.learning_rate_at(s, 100) for s in range(100)]
    peak = math.ceil(0.06 * 100) - 1
    assert rates[peak] == 1.0
    assert rates[0] == pytest.approx(1 / 6)
    assert all(a < b for a, b in itertools.pairwise(rates[: peak + 1]))
    assert all(a > b for a, b in itertools.pairwise(rates[peak:]))
    assert 0 < rates[-1] < 0.02


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_no_step_of_a_short_training_is_wasted(steps: int) -> None:
    assert all(Solver(lr=1.0).learning_rate_at(s, steps) > 0 for s in range(steps))


def test_the_rate_follows_the_optimiser_unless_it_is_given() -> None:
    assert (
        Solver(optimizer="sgd").learning_rate,
        Solver(optimizer="adamw").learning_rate,
        Solver(lr=3.0).learning_rate,
    ) == (0.1, 5e-5, 3.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "solver.epochs is 0; it must be at least 1"),
        ({"batch": 0}, "solver.batch is 0"),
        ({"steps": 0}, "solver.steps is 0"),
        ({"warmup": 1.5}, "solver.warmup is 1.5"),
        ({"lr": float("nan")}, "solver.lr is nan"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Solver(**options)  # type: ignore[arg-type]
