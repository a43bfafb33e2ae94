"""The mailbox copes with lost, duplicated and reordered messages."""

from __future__ import annotations

import pytest
import torch
from tests.runs import make_plan, run_rounds

from motet.algorithms import fedavg
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.fault_injection import Faults, FaultyTransport
from motet.transport.in_process import InProcessTransport
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


class OneReply:
    """A transport that delivers the reply of the last client only."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def send(self, request: Request) -> None:
        self.requests.append(request)

    def receive(self, timeout: float) -> Reply | None:
        return Reply(self.requests[-1].id, self.requests[-1].client)

    def close(self) -> None: ...


def test_a_timed_transport_knows_which_clients_have_not_replied() -> None:
    timed = TimedTransport(OneReply())
    for request_id, client in enumerate("ab"):
        timed.send(Request(request_id, client, 0, "p.m", None))
    timed.receive(1.0)
    pending = timed.pending_seconds()
    assert list(pending) == ["a"]
    assert pending["a"] >= 0
