"""A secure sum that is interrupted at any stage begins again with new keys, and the run ends with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.networks import make_setup
from tests.runs import advance, run_rounds, start_run

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import SESSION_LOST, RunError
from motet.core.layers import Layers
from motet.core.script import ClientId
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.secure import SECURE
from motet.secure.client_session import STAGES
from motet.transport.client_connection import ClientSetup
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import serialize

PROTOCOLS = [name for name in SECURE if name != "none"]
ALGORITHM = FedAvg(Solver(optimizer="sgd", lr=0.1, batch=8), shared=Layers.parse("layers", "head"))  # with client state
VICTIM = 1  # the client that is killed


class ServerKilled(BaseException):
    """Ends the server like kill -9: nothing is saved after it."""


class RemoteClients:
    """Clients with their own folders. One of them, or the server, is killed once, when a stage of the first sum is reached.

    A killed client forgets everything but its files. Its reply is lost, and after its restart the request comes again.
    """

    def __init__(self, federation: Federation, protocol: str, folder: Path) -> None:
        self.federation, self.protocol, self.folder = federation, protocol, folder
        self.setups = {client: self._build(client) for client in federation.clients}
        self.queue: list[Request] = []
        self.kill_server_at = self.kill_client_at = ""
        self.requests: list[tuple[ClientId, str]] = []

    def _build(self, client: ClientId) -> ClientSetup:
        return make_setup(self.federation, ALGORITHM, self.folder / client, secure=SECURE[self.protocol]())

    def restart(self, client: ClientId) -> None:
        self.setups[client] = self._build(client)

    def send(self, request: Request) -> None:
        self.queue.append(request)

    def receive(self, timeout: float) -> Reply | None:
        if not self.queue:
            return None
        request = self.queue.pop(0)
        stage = request.address.partition(".")[2]
        self.requests.append((request.client, stage))
        is_victim = request.client == self.federation.clients[VICTIM]
        reply = self._answer(request)
        if stage == self.kill_client_at and is_victim:
            self.kill_client_at = ""
            self.restart(request.client)
            reply = self._answer(request)
        if stage == self.kill_server_at and is_victim:
            self.kill_server_at = ""
            self.queue.clear()
            raise ServerKilled
        return reply

    def _answer(self, request: Request) -> Reply:
        setup = self.setups[request.client]
        setup.journal.begin_request(request)
        return next(iter(setup.runtime.answer_requests(iter([request]))))

    def close(self) -> None: ...


def start_server(clients: RemoteClients, folder: Path, **options: Any) -> FederatedRun:
    """Start a server process, which continues from the files of an earlier one if there are any."""
    run = start_run(
        clients.federation,
        ALGORITHM,
        2,
        folder=folder,
        connect=lambda runtime: clients,
        is_remote=True,
        secure=SECURE[clients.protocol](),
        **options,
    )
    run.resume()
    return run


def client_states(clients: RemoteClients) -> list[bytes]:
    return [serialize(setup.journal.get("fedavg", client)) for client, setup in clients.setups.items()]


@pytest.fixture(scope="module", params=PROTOCOLS)
def uninterrupted(request: pytest.FixtureRequest, federation: Federation) -> Iterator[tuple[str, FederatedRun]]:
    yield request.param, run_rounds(federation, ALGORITHM, 1, secure=SECURE[request.param]())


@pytest.mark.parametrize("killed", ["server", "client", "client and server"])
def test_a_run_that_is_killed_inside_a_sum_resumes_with_the_same_bits(
    killed: str, uninterrupted: tuple[str, FederatedRun], federation: Federation, tmp_path: Path
) -> None:
    protocol, expected = uninterrupted
    for stage in STAGES:
        folder = tmp_path / stage
        clients = RemoteClients(federation, protocol, folder / "clients")
        clients.kill_server_at = stage if "server" in killed else ""
        clients.kill_client_at = stage if killed == "client" else ""
        run = start_server(clients, folder / "run")
        if "server" in killed:
            with pytest.raises(ServerKilled):
                advance(run)
            if "client" in killed:
                clients.restart(federation.clients[VICTIM])
            run = start_server(clients, folder / "run")
        advance(run)
        assert serialize(run.state) == serialize(expected.state), stage
        assert run.engine.progress.traffic == expected.engine.progress.traffic, stage
        sums_begun = clients.requests.count((federation.clients[0], "advertise"))
        restarts = 1 if "server" in killed or stage != "advertise" else 0  # a killed client just sends other keys
        assert sums_begun == 1 + restarts, stage
        for client, state in zip(federation.clients, client_states(clients), strict=True):
            assert state == serialize(expected.storage.client_states.get("fedavg", client)), stage


def test_a_finished_sum_is_not_repeated(federation: Federation, tmp_path: Path) -> None:
    clients = RemoteClients(federation, "secagg", tmp_path / "clients")
    advance(start_server(clients, tmp_path / "run"))  # killed before it saved the round
    requests = len(clients.requests)
    resumed = start_server(clients, tmp_path / "run")
    assert resumed.rounds == 0
    advance(resumed)
    assert len(clients.requests) == requests


def test_a_client_that_always_forgets_the_sum_ends_the_run(federation: Federation, tmp_path: Path) -> None:
    clients = RemoteClients(federation, "secagg", tmp_path / "clients")
    answer = clients._answer

    def forget(request: Request) -> Reply:
        clients.restart(request.client)
        return answer(request)

    clients._answer = forget  # type: ignore[method-assign]
    with pytest.raises(RunError, match=SESSION_LOST):
        advance(start_server(clients, tmp_path / "run"))


def test_a_tolerant_run_continues_the_sum_without_the_client_that_forgot_it(
    federation: Federation, tmp_path: Path
) -> None:
    clients = RemoteClients(federation, "secagg", tmp_path / "clients")
    clients.kill_client_at = "confirm"
    run = start_server(clients, tmp_path / "run", wait_policy=WaitPolicy(quorum=0.5, on_error="drop"))
    advance(run)
    assert [failure.client for failure in run.engine.mailbox.failures] == [federation.clients[VICTIM]]
    assert torch.isfinite(run.state.params.flat).all()
    assert len([s for _, s in clients.requests if s == "advertise"]) == len(federation.clients)
