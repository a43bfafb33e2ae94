"""The mailbox copes with lost, duplicated and reordered messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.runs import make_plan, run_rounds, start_run
from tests.transports import AnsweringTransport

from motet.algorithms import fedavg
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.fault_injection import Faults, FaultyTransport
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import ClientFailure
from motet.transport.reply_timer import TimedTransport
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)


def run_with_faults(
    federation: Federation, faults: Faults, wait_policy: WaitPolicy = WaitPolicy(), seed: int = 1
) -> FederatedRun:
    plan = make_plan(federation, fedavg(SOLVER), 3, wait_policy=wait_policy)
    running = FederatedRun(
        plan,
        SerialExecutor(torch.device("cpu")),
        connect=lambda runtime: FaultyTransport(InProcessTransport(runtime), faults, Seed(seed)),
    )
    running.run_rounds()
    return running


def test_duplicated_and_reordered_replies_change_nothing(federation: Federation) -> None:
    faulty = run_with_faults(federation, Faults(duplicates=0.7, shuffled=0.7))
    plain = run_rounds(federation, fedavg(SOLVER), 3)
    assert serialize(faulty.state) == serialize(plain.state)
    assert faulty.engine.mailbox.traffic == plain.engine.mailbox.traffic


def test_the_seed_decides_which_messages_are_lost(federation: Federation) -> None:
    wait_policy = WaitPolicy(quorum=0.25)
    first, second = (run_with_faults(federation, Faults(loss=0.2), wait_policy) for _ in range(2))
    assert first.engine.mailbox.failures == second.engine.mailbox.failures != []
    assert serialize(first.state) == serialize(second.state)
    other = run_with_faults(federation, Faults(loss=0.2), wait_policy, seed=3)
    assert other.engine.mailbox.failures != first.engine.mailbox.failures


def test_invalid_faults_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"transport\.faults\.loss is 1\.5"):
        Faults(loss=1.5)


def test_a_timed_transport_knows_which_clients_have_not_replied() -> None:
    timed = TimedTransport(AnsweringTransport())
    for request_id, client in enumerate("ab"):
        timed.send(Request(request_id, client, 0, "p.m", None))
    timed.receive(1.0)
    pending = timed.pending_seconds()
    assert list(pending) == ["a"]
    assert pending["a"] >= 0


class FailingClient:
    """A transport on which one client answers every request with an error."""

    def __init__(self, transport: InProcessTransport, client: str) -> None:
        self.transport, self.client = transport, client
        self.replies: list[Reply] = []

    def send(self, request: Request) -> None:
        if request.client == self.client:
            self.replies.append(Reply(request.id, request.client, error=f"{request.address} failed"))
        else:
            self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        return self.replies.pop() if self.replies else self.transport.receive(timeout)

    def close(self) -> None:
        self.transport.close()


def test_a_resumed_run_names_the_failures_before_the_interruption(federation: Federation, tmp_path: Path) -> None:
    def start(folder: Path) -> FederatedRun:
        return start_run(
            federation,
            fedavg(SOLVER),
            rounds=3,
            folder=folder,
            connect=lambda runtime: FailingClient(InProcessTransport(runtime), federation.clients[0]),
            wait_policy=WaitPolicy(quorum=0.25, on_error="drop"),
        )

    whole = start(tmp_path / "whole")
    whole.run_rounds()
    interrupted = start(tmp_path / "interrupted")
    interrupted.run_rounds(until=2)
    interrupted.engine.mailbox.failures.append(ClientFailure(2, "north", "in the round that is repeated"))
    interrupted.save()
    resumed = start(tmp_path / "interrupted")
    assert resumed.resume() and resumed.rounds == 2
    resumed.run_rounds()
    assert resumed.finish().failures == whole.finish().failures
    assert {failure.round for failure in resumed.engine.mailbox.failures} >= {0, 1, 2}
