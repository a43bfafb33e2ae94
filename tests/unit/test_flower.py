"""Flower: the adapter for its clients, and what the transport does with nodes and ClientApps that do not behave."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.networks import FakeFlower, make_admission

import motet
from motet.core.errors import ConfigError, RunError
from motet.experiment.deploy.join_run import make_connector
from motet.experiment.deploy.network_options import NetworkOptions
from motet.transport.connections import Connections
from motet.transport.flower_grid import FlowerNodes
from motet.transport.flower_socket import FlowerSocket
from motet.transport.flower_version import require_flower
from motet.transport.flower_visit import HEADER_BYTES, VisitHeader, VisitReply, visit_client


class LineClient:
    """A client as in Flower's quickstart: its own data, model and training loop, and a counter that is not a float."""

    def __init__(self, first: int, last: int) -> None:
        self.x = np.arange(first, last, dtype=np.float32) / 10
        self.y = 2 * self.x - 1
        self.types: set[Any] = set()

    def get_parameters(self, config: dict[str, Any]) -> list[np.ndarray]:
        return [np.zeros(1, np.float32), np.zeros(1, np.float32), np.array(0, np.int64)]

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        slope, offset, steps = parameters
        self.types.add(steps.dtype)
        for _ in range(config["steps"]):
            error = slope * self.x + offset - self.y
            slope = slope - 0.2 * np.float32((error * self.x).mean())
            offset = offset - 0.2 * np.float32(error.mean())
        return [slope, offset, steps + config["steps"]], len(self.x), {}

    def evaluate(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        loss = float(((parameters[0] * self.x + parameters[1] - self.y) ** 2).mean())
        return loss, len(self.x), {"closeness": 1 - loss, "note": "not a number"}


def federate(**changes: Any) -> Any:
    clients = {"left": LineClient(-10, 0), "right": LineClient(0, 30)}
    options = {"primary_metric": "closeness", "fit_config": {"steps": 20}, **changes}
    return motet.flower_federation(options.pop("clients", clients), **options)


def test_clients_of_flower_train_in_a_run_and_are_weighted_by_their_examples() -> None:
    clients = {"left": LineClient(-10, 0), "right": LineClient(0, 30)}
    before = clients["left"].get_parameters({})
    result = motet.run(federate(clients=clients), motet.fedavg(), rounds=1)
    fitted = [(client.fit(before, {"steps": 20})[0], len(client.x)) for client in clients.values()]
    expected = [sum(n * np.asarray(arrays[i], np.float64) for arrays, n in fitted) / 40 for i in range(3)]
    flat = result.state.params.flat.numpy()
    np.testing.assert_allclose(flat, np.concatenate([np.ravel(array) for array in expected]), rtol=1e-5)
    assert clients["left"].types == {np.dtype(np.int64)}  # the counter keeps its type


def test_clients_of_flower_learn_with_a_codec_and_a_secure_sum() -> None:
    result = motet.run(federate(), "fedavg", rounds=12, codec=["float16"])
    assert result.final["closeness"] > 0.95
    clients = {f"part{k}": LineClient(10 * k - 10, 10 * k) for k in range(3)}
    secure = motet.run(federate(clients=clients), "fedavg", rounds=12, secure={"type": "secagg", "range": 64.0})
    assert secure.final["closeness"] > 0.95


def test_a_client_of_flower_refuses_what_it_cannot_do() -> None:
    with pytest.raises(RunError, match="computes the loss itself"):
        motet.run(federate(), motet.fedprox(), rounds=1)
    with pytest.raises(ConfigError, match="not the primary metric 'accuracy'"):
        federate(primary_metric="accuracy")
    with pytest.raises(ConfigError, match="left is a dict without get_parameters, fit, evaluate"):
        federate(clients={"left": {}})
    with pytest.raises(ConfigError, match="there are no clients"):
        federate(clients={})
    with pytest.raises(ConfigError, match="get_parameters returned no arrays; give initial_parameters"):
        federate(initial_parameters=[])


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (([np.zeros(1)] * 3, "many", {}), r"fit returned a tuple that is not \(arrays, number of examples, metrics\)"),
        (([np.zeros(2)] * 3, 3, {}), r"fit returned arrays of shapes .*; expected"),
        (None, "fit returned a NoneType"),
    ],
)
def test_invalid_results_of_a_client_are_explained(result: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineClient, "fit", lambda self, parameters, config: result)
    with pytest.raises(RunError, match=reason):
        motet.run(federate(), motet.fedavg(), rounds=1)


@pytest.mark.parametrize("version", ["1.40.0", "2.0.0"])
def test_a_version_of_flower_that_does_not_fit_is_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(ConfigError, match=rf"Flower {version} is installed; Motet works with 1.41 and later"):
        require_flower()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fl") as name:  # the path of a socket must be short
        yield Path(name)


def test_a_socket_is_private_and_has_one_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The mask belongs to the whole process: two threads that change it at once can leave the wrong one behind.
    monkeypatch.setattr("os.umask", lambda mask: pytest.fail("the mask of new files was changed"))
    socket = FlowerSocket(folder / "s")
    assert (folder / "s").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="a client already listens"):
        make_connector("flower", str(folder / "s"), NetworkOptions(), "a")
    socket.close()
    with pytest.raises(ConfigError, match=r"cannot listen at .*; with --transport flower, --server is the path"):
        FlowerSocket(folder / "missing" / "s")


def test_a_client_app_that_is_not_expected_changes_nothing(folder: Path) -> None:
    socket = FlowerSocket(folder / "s", visit_seconds=0.01)
    path = str(folder / "s")
    for data in (
        b"",
        b"[]",
        b"{",
        b'{"link": 1, "number": 0, "messages": 0, "lost": false}',
        b"x" * (HEADER_BYTES + 1),
    ):
        with Client(path, "AF_UNIX") as connection:
            connection.send_bytes(data)
            with pytest.raises((EOFError, OSError)):
                connection.recv_bytes()
    assert visit_client(path, VisitHeader("other", 3, 0), []) == (VisitHeader("other", 3, 0, lost=True), [])
    assert socket.link is None
    assert visit_client(path, VisitHeader("first", 0, 0), [])[1] == []
    assert socket.connect().name == "first"
    with pytest.raises(RunError, match="ended during a message"):  # longer than the answer to a join request may be
        socket.link.limit_messages(10)  # type: ignore[union-attr]
        visit_client(path, VisitHeader("first", 1, 1), [b"x" * 11])
    socket.close()


def test_a_client_app_without_a_client_says_what_to_start(folder: Path) -> None:
    with pytest.raises(RunError, match=r"no Motet client listens at .*; start: motet join --transport flower"):
        visit_client(str(folder / "s"), VisitHeader("a", 0, 0), [])
    with pytest.raises(ConfigError, match="start it with --node-config 'motet-socket="):
        visit_client("", VisitHeader("a", 0, 0), [])


class FailingPost(FakeFlower):
    """Node 1 fails its first visits. Then the SuperLink cannot be reached."""

    def find_nodes(self) -> set[int]:
        return {1}

    def send(self, node: int, link: str, number: int, messages: Sequence[bytes]) -> str:
        self.visits += 1
        self.replies[str(self.visits)] = VisitReply(str(self.visits), "no client\x1b[2J", is_lost=True)
        return str(self.visits)


def test_a_node_that_fails_is_reported_once_and_asked_again() -> None:
    with FailingPost() as post:
        nodes = FlowerNodes(Connections(make_admission("a")), post, post.log.append)
        for now in (0.0, 1.0, 10.0, 20.0):
            nodes.step(now)
        assert post.visits == 3  # not at 1.0, which is too early
        assert post.log == ["SuperNode 1: no client?[2J"]


def test_a_node_that_leaves_is_dropped() -> None:
    with FakeFlower() as post:
        connections = Connections(make_admission("a"))
        nodes = FlowerNodes(connections, post, post.log.append)
        nodes.post.find_nodes = lambda: {7}  # type: ignore[method-assign]
        nodes.post.send = lambda *visit: "1"  # type: ignore[method-assign]
        nodes.step(0.0)
        assert list(nodes.links) == [7]
        nodes.post.find_nodes = set  # type: ignore[method-assign]
        nodes.step(100.0)
        assert not nodes.links
        assert post.log == ["SuperNode 7 is gone"]
