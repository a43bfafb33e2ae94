"""How Motet uses Flower's messages: to carry its own, and to train apps with functions for messages."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.flower_modules import provide_flower

import motet
from motet.core.errors import ConfigError, RunError
from motet.transport.flower_socket import FlowerSocket
from motet.transport.framing import OutgoingMessage

NAMES = ("slope", "offset")


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Any:
    return provide_flower(monkeypatch)


class Grid:
    """The grid of a ServerApp with one node, whose ClientApp runs at once."""

    def __init__(self, flower: Any, socket: str) -> None:
        state, node = flower.RecordDict(), {"motet-socket": socket} if socket else {}
        self.context = flower.Context(run_id=1, node_id=7, node_config=node, state=state, run_config={})
        self.sent: dict[str, Any] = {}
        self.accepts = True

    def get_node_ids(self) -> list[int]:
        return [7]

    def push_messages(self, messages: Sequence[Any]) -> list[str]:
        if not self.accepts:
            return [""]
        [message] = messages
        assert message.metadata.dst_node_id == 7
        self.sent["m"] = importlib.import_module("motet.flower").client_app(message, self.context)
        return ["m"]

    def pull_messages(self, ids: Sequence[str]) -> list[Any]:
        return [self.sent.pop(name) for name in ids if name in self.sent]


def test_messages_of_motet_pass_through_those_of_flower(flower: Any) -> None:
    relay = importlib.import_module("motet.transport.flower_relay")
    with tempfile.TemporaryDirectory(prefix="fl") as folder:  # the path of a socket must be short
        socket = FlowerSocket(Path(folder) / "s", visit_seconds=0.01)
        grid = Grid(flower, f"{folder}/s")
        post = relay.GridPost(grid)
        assert post.find_nodes() == {7}
        [opened] = post.receive([post.send(7, "link", 0, [])])
        assert (opened.error, opened.is_lost, opened.messages) == ("", False, [])
        link = socket.connect(1.0)
        link.send(OutgoingMessage([b"an ", b"answer"]))
        link.limit_messages(1000)
        [reply] = post.receive([post.send(7, "link", 1, [b"first", b"", b"third"])])
        assert [bytes(link.receive(1.0) or b"") for _ in range(3)] == [b"first", b"", b"third"]
        assert [bytes(data) for data in reply.messages] == [b"an answer"]
        [lost] = post.receive([post.send(7, "another link", 1, [])])
        assert lost.is_lost
        socket.close()
        [missing] = post.receive([post.send(7, "link", 2, [])])
        assert missing.is_lost
        assert "no Motet client listens at" in missing.error
    grid.accepts = False
    with pytest.raises(ConnectionError, match="did not take a message for SuperNode 7"):
        post.send(7, "link", 3, [])


def make_app(flower: Any, **changes: Any) -> Any:
    """A ClientApp as in Flower's quickstart: functions for messages, its own data and training loop."""
    client_app = importlib.import_module("flwr.clientapp").ClientApp()

    def load(context: Any) -> tuple[np.ndarray, np.ndarray]:
        x = np.arange(10 * context.node_config["partition-id"] - 10, 10 * context.node_config["partition-id"]) / 10
        return x, 2 * x - 1

    @client_app.train()
    def train(message: Any, context: Any) -> Any:
        x, y = load(context)
        slope, offset = (message.content["arrays"][name].numpy().astype(np.float64) for name in NAMES)
        for _ in range(context.run_config["steps"]):
            error = slope * x + offset - y
            slope = slope - message.content["config"]["lr"] * (error * x).mean()
            offset = offset - message.content["config"]["lr"] * error.mean()
        arrays = {name: flower.Array(a.astype(np.float32)) for name, a in zip(NAMES, (slope, offset), strict=True)}
        arrays |= changes.get("arrays", {})
        metrics = changes.get("metrics", {"train_loss": 0.5, "num-examples": len(x)})
        records = {"arrays": flower.ArrayRecord(arrays), "metrics": flower.MetricRecord(metrics)}
        return flower.Message(flower.RecordDict(records), reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Any, context: Any) -> Any:
        x, y = load(context)
        slope, offset = (message.content["arrays"][name].numpy() for name in NAMES)
        loss = float(((slope * x + offset - y) ** 2).mean())
        metrics = flower.MetricRecord({"eval_loss": loss, "closeness": 1 - loss, "num-examples": len(x)})
        return flower.Message(flower.RecordDict({"metrics": metrics}), reply_to=message)

    return client_app


def federate(flower: Any, **changes: Any) -> Any:
    create_clients = importlib.import_module("motet.flower").create_clients
    nodes = {f"node-{k}": {"partition-id": k} for k in range(3)}
    weights = {"slope": torch.zeros(1), "offset": np.zeros(1, np.float32)}
    clients = create_clients(make_app(flower, **changes), nodes, {"steps": 20}, weights)
    return motet.flower_federation(clients, primary_metric="closeness", fit_config={"lr": 0.2})


def test_an_app_with_functions_for_messages_learns_in_a_run(flower: Any) -> None:
    result = motet.run(federate(flower), "fedavg", rounds=6, secure={"type": "secagg"})
    np.testing.assert_allclose(result.state.params.flat.numpy(), [2, -1], atol=0.1)
    assert result.final["closeness"] > 0.9
    assert result.final["loss"] == pytest.approx(1 - result.final["closeness"])


def test_an_app_with_functions_for_messages_says_what_it_lacks(flower: Any) -> None:
    with pytest.raises(RunError, match=r"other arrays than the first weights: extra\."):
        motet.run(federate(flower, arrays={"extra": flower.Array(np.zeros(1))}), "fedavg", rounds=1)
    with pytest.raises(RunError, match="lack 'num-examples'"):
        motet.run(federate(flower, metrics={"train_loss": 0.5}), "fedavg", rounds=1)
    with pytest.raises(ConfigError, match="pass first_weights"):
        importlib.import_module("motet.flower").create_clients(make_app(flower), {"a": {}})
