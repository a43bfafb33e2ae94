"""Federations with a custom trainer: training code that knows nothing about federated learning."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import motet
from motet.core.errors import ConfigError, MotetError, RunError
from motet.core.rng import Seed
from motet.learning.solver import Solver

Points = list[tuple[float, float]]


class LinearRegression:
    """A trainer that fits a line to points and knows nothing about federated learning."""

    def __init__(self, lr: float = 0.1) -> None:
        self.line, self.lr = nn.Linear(1, 1), lr
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)

    def get_parameters(self) -> Mapping[str, Tensor]:
        return dict(self.line.state_dict())

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        self.line.load_state_dict(dict(parameters))

    def train(self, data: Points) -> None:
        x, y = torch.tensor(data).T[:, :, None]
        for _ in range(20):
            self.line.zero_grad()
            nn.functional.mse_loss(self.line(x), y).backward()
            for parameter in self.line.parameters():
                parameter.data -= self.lr * parameter.grad  # type: ignore[operator]

    def test(self, data: Points) -> dict[str, float]:
        x, y = torch.tensor(data).T[:, :, None]
        with torch.no_grad():
            return {"closeness": 1 - float(nn.functional.mse_loss(self.line(x), y))}


def make_points(first: float, last: float) -> Points:
    return [(x / 10, 2 * x / 10 - 1) for x in range(int(10 * first), int(10 * last))]


LEFT, RIGHT, ALL_POINTS = make_points(-1, 0), make_points(0, 1), make_points(-1, 1)
DATA = {"left": (LEFT, LEFT), "right": (RIGHT, RIGHT)}


def make_clients(trainer: Any = None, data: Any = DATA, primary_metric: str = "closeness") -> Any:
    trainer = trainer or LinearRegression()
    return motet.custom_federation(trainer, data, ALL_POINTS, primary_metric=primary_metric)


def test_a_custom_trainer_is_federated() -> None:
    clients = make_clients()
    result = motet.run(clients, motet.fedavg(), rounds=10)
    assert result.final["closeness"] > 0.98
    assert set(result.client_scores) == {"left", "right"}
    assert motet.run(clients, motet.isolated(), rounds=2).traffic.payload_up == 0


def test_a_trainer_that_diverges_is_reported_with_the_client() -> None:
    with pytest.raises(RunError, match="left: round 1: the trainer returned parameters that are not finite"):
        motet.run(make_clients(LinearRegression(lr=1e30)), motet.fedavg(), rounds=2)


def test_invalid_custom_federations_are_rejected() -> None:
    with pytest.raises(ConfigError, match="reports closeness, not the primary metric 'accuracy'"):
        make_clients(primary_metric="accuracy")
    with pytest.raises(ConfigError, match="data has no clients"):
        make_clients(data={})
    with pytest.raises(ConfigError, match=r"data is a list; expected \{name: \(train, test\)\}"):
        make_clients(data=[(LEFT, LEFT)])
    with pytest.raises(ConfigError, match=r"the data of client 'left' is a list; expected two values, \(train, test\)"):
        make_clients(data={"left": LEFT})


class FlowerLikeClient:
    """The methods of Flower's NumPyClient."""

    def get_parameters(self, config: Any) -> Any: ...
    def fit(self, parameters: Any, config: Any) -> Any: ...
    def evaluate(self, parameters: Any, config: Any) -> Any: ...


class ArrayRegression(LinearRegression):
    def get_parameters(self) -> Any:
        return [value.numpy() for value in self.line.state_dict().values()]


class TripleRegression(LinearRegression):
    def test(self, data: Points) -> Any:
        return 0.5, len(data), {"closeness": 0.5}


class TextRegression(LinearRegression):
    def test(self, data: Points) -> Any:
        return {"closeness": "high"}


class ReturnedRegression(LinearRegression):
    """Trains a copy and returns its parameters, as `fit` of a Flower client does."""

    def train(self, data: Points) -> Any:
        copied = copy.deepcopy(self)
        LinearRegression.train(copied, data)
        return list(copied.line.parameters()), len(data), {}


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (LinearRegression, r"the trainer is the class LinearRegression; pass an object: LinearRegression\(…\)"),
        (FlowerLikeClient(), "has no set_parameters, train, test; it needs.*use motet.flower_federation"),
        (ArrayRegression(), r"get_parameters returned a list; expected tensors by name, such as model.state_dict\(\)"),
        (TripleRegression(), "test returned a tuple; expected numbers by name"),
        (TextRegression(), "test returned a dict of str; expected numbers by name"),
    ],
    ids=["class", "flower", "arrays", "triple", "text"],
)
def test_trainers_with_other_methods_or_results_are_refused(trainer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_clients(trainer)


def test_a_trainer_that_returns_its_parameters_and_does_not_keep_them_is_refused() -> None:
    with pytest.raises(RunError, match="left: the trainer's train returned a tuple, and its parameters are as before"):
        motet.run(make_clients(ReturnedRegression()), "fedavg", rounds=1)


class LossRegression(LinearRegression):
    """Returns the loss of its training, also without data."""

    def train(self, data: Points) -> Any:
        if data:
            super().train(data)
        return 0.0


def test_a_client_without_examples_may_return_its_parameters_as_they_were() -> None:
    clients = make_clients(LossRegression(), {"left": DATA["left"], "empty": ([], RIGHT)})
    assert motet.run(clients, motet.fedavg(), rounds=2).rounds == 2


class ColumnRegression(LinearRegression):
    """Takes points in any form, and trains on none of them."""

    def train(self, data: Any) -> None: ...
    def test(self, data: Any) -> dict[str, float]:
        return {"closeness": 0.5}


class CountingRegression(ColumnRegression):
    def count_examples(self, data: str) -> int:
        return {"points.csv": 7}[data]


COLUMNS = torch.zeros(5, 3), torch.zeros(5)


@pytest.mark.parametrize(
    ("data", "examples"),
    [
        (LEFT, 10),
        (COLUMNS, 5),
        ({"x": COLUMNS[0], "y": [0] * 5}, 5),
        (DataLoader(TensorDataset(*COLUMNS), batch_size=2), 5),
        (np.zeros((4, 2)), 4),
    ],
    ids=["rows", "tensors", "mapping", "loader", "array"],
)
def test_a_client_weighs_as_much_as_it_has_examples(data: Any, examples: int) -> None:
    clients = make_clients(ColumnRegression(), {"left": (data, data)})
    assert clients.context("left", 0, "mine.train").size == examples


def test_a_trainer_counts_examples_that_have_no_length() -> None:
    data = {"left": ("points.csv", "points.csv")}
    assert make_clients(CountingRegression(), data).context("left", 0, "mine.train").size == 7
    for value, name in (
        ("points.csv", "a str"),
        ((torch.zeros(3), torch.zeros(2)), "a tuple"),
        (iter([1]), "a list_it"),
    ):
        with pytest.raises(ConfigError, match=rf"client 'left' cannot be read from {name}.*count_examples\(data\)"):
            make_clients(ColumnRegression(), {"left": (value, value)})


@pytest.mark.parametrize("seed", [[1, 2], 1.5, "7", None, True])
def test_a_custom_federation_refuses_a_seed_that_is_no_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"custom_federation: seed is {seed!r}; expected a whole number")):
        motet.custom_federation(LinearRegression(), DATA, ALL_POINTS, primary_metric="closeness", seed=seed)


def test_a_custom_federation_takes_a_seed_of_numpy() -> None:
    clients = motet.custom_federation(
        LinearRegression(), DATA, ALL_POINTS, primary_metric="closeness", seed=cast("int", np.int64(7))
    )
    assert clients.seed.to_int() == Seed(7).to_int()


class ReorderedRegression(LinearRegression):
    """Returns its parameters in another order after training. Both have one number."""

    def __init__(self) -> None:
        super().__init__()
        self.is_trained = False

    def train(self, data: Points) -> None:
        super().train(data)
        self.is_trained = True

    def get_parameters(self) -> Mapping[str, Tensor]:
        parameters = super().get_parameters()
        return dict(reversed(parameters.items())) if self.is_trained else parameters


def test_parameters_of_a_custom_trainer_must_keep_their_order() -> None:
    with pytest.raises(MotetError, match="the parameters differ in the order of their names"):
        motet.run(make_clients(ReorderedRegression()), motet.fedavg(), rounds=1)


def test_algorithms_that_a_custom_trainer_cannot_run_are_rejected() -> None:
    with pytest.raises(RunError, match="a custom trainer computes the loss itself"):
        motet.run(make_clients(), motet.fedprox(), rounds=1)
    with pytest.raises(ConfigError, match=r"no split 'union' with a custom trainer.*give one client all data"):
        motet.run(make_clients(), motet.centralized(), rounds=1)


@pytest.mark.parametrize(
    "options",
    [{"train_only": "head"}, {"keep_optimizer_state": True}, {"examples": [], "lr_horizon": (0, 3)}],
    ids=["train_only", "keep_optimizer_state", "examples"],
)
def test_a_custom_trainer_refuses_options_it_cannot_do(options: dict[str, Any]) -> None:
    context = make_clients().context("left", 0, "mine.train")
    with pytest.raises(ConfigError, match=rf"trains with {', '.join(options)}, which a custom trainer cannot do"):
        next(context.fit(context.initial_params, Solver(), **options))


class SeededRegression(LinearRegression):
    """Notes the seed of each training, and a random number of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[int, float]] = []

    def train(self, data: Points, seed: int = 0) -> None:
        self.draws.append((seed, float(torch.rand(1))))
        super().train(data)


def test_a_custom_trainer_gets_a_seed() -> None:
    """It depends on the run's seed, the client and the round, and nothing else."""
    trainers = [SeededRegression(), SeededRegression()]
    for trainer in trainers:
        torch.rand(1)
        motet.run(make_clients(trainer), "fedavg", rounds=2)
    assert trainers[0].draws == trainers[1].draws
    assert len(set(trainers[0].draws)) == 4


def test_a_custom_trainer_ignores_options_with_their_default_values() -> None:
    context = make_clients().context("left", 0, "mine.train")
    with pytest.raises(StopIteration) as end:
        next(context.fit(context.initial_params, Solver(), purpose="mine", train_only=None, keep_optimizer_state=False))
    assert end.value.value.examples_processed == len(LEFT)


def test_a_custom_trainer_has_no_predictions() -> None:
    context = make_clients().context("left", 0, "mine.train")
    with pytest.raises(ConfigError, match="reads a model's predictions"):
        context.infer(context.initial_params, [])
