"""Motet from Python, and somebody's own trainer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import motet
from motet.core.errors import ConfigError, RunError


def test_ten_lines_of_python_train_and_export(tmp_path: Path) -> None:
    corpus = motet.load("toy-classification", limit=240, test_limit=60)
    clients = motet.federation(corpus, model="tiny", max_tokens=24, partition="label", clients=4, alpha=5.0)
    result = motet.run(clients, motet.fedopt(motet.Solver(lr=0.003, batch=8, epochs=2)), rounds=6, workers=0)
    assert result.best["accuracy"] > 0.6
    assert len(result.record.curve("accuracy")) == 6
    motet.export(clients, result, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_personal_models_are_trained_coded_and_exported_from_python(tmp_path: Path) -> None:
    from motet.codecs import Channel, CodecChain, int8, top_k

    corpus = motet.load("toy-classification", limit=160, test_limit=60)
    clients = motet.federation(
        corpus, model="tiny", max_tokens=24, partition="label", clients=3, alpha=0.5, freeze=["embeddings"]
    )
    algorithm = motet.fedsplit(motet.Solver(lr=0.003, batch=8), c=1)
    channel = Channel(up=CodecChain((top_k(0.2), int8())))
    result = motet.run(clients, algorithm, rounds=2, workers=0, channel=channel)
    assert result.traffic.payload_up < 0.3 * result.traffic.payload_down
    assert result.local_test["accuracy"] == pytest.approx(result.clients_final["mean"])
    for client in clients.clients:
        motet.export(clients, result, tmp_path / client, client=client)
    models = {(tmp_path / c / "model.safetensors").read_bytes() for c in clients.clients}
    assert len(models) == 3


class Straight:
    """A line through points, fitted by hand: it has never heard of federated learning."""

    def __init__(self, rate: float = 0.1) -> None:
        self.line, self.rate = nn.Linear(1, 1), rate
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)

    def get_parameters(self) -> Mapping[str, Tensor]:
        return dict(self.line.state_dict())

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        self.line.load_state_dict(dict(parameters))

    def train(self, data: list[tuple[float, float]]) -> None:
        x, y = torch.tensor(data).T[:, :, None]
        for _ in range(20):
            self.line.zero_grad()
            nn.functional.mse_loss(self.line(x), y).backward()
            for p in self.line.parameters():
                p.data -= self.rate * p.grad  # type: ignore[operator]

    def test(self, data: list[tuple[float, float]]) -> dict[str, float]:
        x, y = torch.tensor(data).T[:, :, None]
        with torch.no_grad():
            return {"closeness": 1 - float(nn.functional.mse_loss(self.line(x), y))}


def points(first: float, last: float) -> list[tuple[float, float]]:
    return [(x / 10, 2 * x / 10 - 1) for x in range(int(10 * first), int(10 * last))]


DATA: dict[str, Any] = {"left": (points(-1, 0), points(-1, 0)), "right": (points(0, 1), points(0, 1))}


def test_ones_own_trainer_is_federated_as_it_is() -> None:
    people = motet.custom_federation(Straight(), DATA, points(-1, 1), primary_metric="closeness")
    result = motet.run(people, motet.fedavg(), rounds=10)
    assert result.final["closeness"] > 0.98
    assert set(result.clients) == {"left", "right"}
    alone = motet.run(people, motet.isolated(), rounds=2)
    assert alone.traffic.payload_up == 0


def test_a_trainer_that_leaves_nonsense_is_named() -> None:
    people = motet.custom_federation(Straight(rate=1e30), DATA, points(-1, 1), primary_metric="closeness")
    with pytest.raises(RunError, match="left, round 0: the trainer returned parameters that are not finite"):
        motet.run(people, motet.fedavg(), rounds=2)


def test_what_ones_own_trainer_cannot_do_is_said() -> None:
    with pytest.raises(ConfigError, match="reports closeness, not the primary metric 'accuracy'"):
        motet.custom_federation(Straight(), DATA, points(-1, 1), primary_metric="accuracy")
    with pytest.raises(ConfigError, match="data has no clients"):
        motet.custom_federation(Straight(), {}, points(-1, 1), primary_metric="closeness")
    people = motet.custom_federation(Straight(), DATA, points(-1, 1), primary_metric="closeness")
    with pytest.raises(RunError, match="a custom trainer computes the loss itself"):
        motet.run(people, motet.fedprox(), rounds=1)
    with pytest.raises(ConfigError, match=r"no split 'union' with a custom trainer.*give one client all data"):
        motet.run(people, motet.centralized(), rounds=1)
