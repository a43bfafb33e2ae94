"""The Python API, and federations with a custom trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import motet
from motet.codecs import Channel, CodecChain, int8, top_k
from motet.core.errors import ConfigError, RunError
from motet.learning.solver import Solver

Points = list[tuple[float, float]]


def test_a_global_model_is_trained_and_exported(tmp_path: Path) -> None:
    corpus = motet.load("toy-classification", limit=240, test_limit=60)
    clients = motet.federation(corpus, model="tiny", max_tokens=24, partition="label", clients=4, alpha=5.0)
    result = motet.run(clients, motet.fedopt(motet.Solver(lr=0.003, batch=8, epochs=2)), rounds=6, workers=0)
    assert result.best["accuracy"] > 0.6
    assert len(result.metrics.curve("accuracy")) == 6
    motet.export(clients, result, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_personal_models_are_trained_with_codecs_and_exported(tmp_path: Path) -> None:
    corpus = motet.load("toy-classification", limit=160, test_limit=60)
    clients = motet.federation(
        corpus, model="tiny", max_tokens=24, partition="label", clients=3, alpha=0.5, freeze=["embeddings"]
    )
    algorithm = motet.fedsplit(motet.Solver(lr=0.003, batch=8), c=1)
    channel = Channel(up=CodecChain((top_k(0.2), int8())))
    result = motet.run(clients, algorithm, rounds=2, workers=0, channel=channel)
    assert result.traffic.payload_up < 0.3 * result.traffic.payload_down
    assert result.local_test["accuracy"] == pytest.approx(result.client_spread["mean"])
    for client in clients.clients:
        motet.export(clients, result, tmp_path / client, client=client)
    models = {(tmp_path / client / "model.safetensors").read_bytes() for client in clients.clients}
    assert len(models) == 3


# ---- custom trainers ------------------------------------------------------------------------------------------------


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
    with pytest.raises(RunError, match="left, round 0: the trainer returned parameters that are not finite"):
        motet.run(make_clients(LinearRegression(lr=1e30)), motet.fedavg(), rounds=2)


def test_invalid_custom_federations_are_rejected() -> None:
    with pytest.raises(ConfigError, match="reports closeness, not the primary metric 'accuracy'"):
        make_clients(primary_metric="accuracy")
    with pytest.raises(ConfigError, match="data has no clients"):
        make_clients(data={})


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


def test_a_custom_trainer_ignores_options_with_their_default_values() -> None:
    context = make_clients().context("left", 0, "mine.train")
    with pytest.raises(StopIteration) as end:
        next(context.fit(context.initial_params, Solver(), purpose="mine", train_only=None, keep_optimizer_state=False))
    assert end.value.value.examples_processed == len(LEFT)


def test_a_custom_trainer_has_no_predictions() -> None:
    context = make_clients().context("left", 0, "mine.train")
    with pytest.raises(ConfigError, match="reads a model's predictions"):
        context.infer(context.initial_params, [])


# ---- old names ------------------------------------------------------------------------------------------------------


@pytest.fixture
def _fresh_warnings() -> Iterator[None]:
    motet._warn_renamed.cache_clear()
    yield
    motet._warn_renamed.cache_clear()


@pytest.mark.usefixtures("_fresh_warnings")
def test_old_names_work_and_warn_once(recwarn: pytest.WarningsRecorder) -> None:
    assert motet.centralised().name == "centralized"
    assert motet.centralised().name == "centralized"
    clients = motet.own_federation(LinearRegression(), DATA, ALL_POINTS, headline="closeness")
    assert clients.task.primary_metric == "closeness"
    messages = [str(warning.message) for warning in recwarn if warning.category is DeprecationWarning]
    assert [message.partition(";")[0] for message in messages if message.startswith("motet.")] == [
        "motet.centralised is now motet.centralized",
        "motet.own_federation is now motet.custom_federation",
    ]
