"""Loss, repetition, disorder: what the mailbox makes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import fedavg
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress
from motet.transport.client_runtime import ClientRuntime
from motet.transport.fault_injection import Faults, FaultyTransport
from motet.transport.in_process import InProcessTransport
from motet.transport.traffic_meter import MeteredTransport
from motet.transport.wait_policy import WaitPolicy
from motet.wire import serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)


def run(federation: Federation, faults: Faults, wait_policy: WaitPolicy = WaitPolicy(), seed: int = 1) -> FederatedRun:
    plan = make_plan(federation, fedavg(SOLVER), 3, wait_policy=wait_policy)
    executor = SerialExecutor(torch.device("cpu"))
    running = FederatedRun(
        plan,
        executor,
        None,
        SilentProgress(),
        lambda host: FaultyTransport(InProcessTransport(host), faults, Seed(seed)),
    )
    running.play_rounds()
    return running


def test_repeated_and_shuffled_replies_change_nothing(
    federation: Federation, rounds: Callable[..., FederatedRun]
) -> None:
    spoilt = run(federation, Faults(duplicates=0.7, shuffled=0.7))
    plain = rounds(federation, fedavg(SOLVER), 3)
    assert serialize(spoilt.state) == serialize(plain.state)
    assert spoilt.mailbox.traffic == plain.mailbox.traffic


def test_lost_messages_are_lost_clients_and_the_same_ones_every_time(federation: Federation) -> None:
    wait_policy = WaitPolicy(quorum=0.25)
    first, second = (run(federation, Faults(loss=0.2), wait_policy) for _ in range(2))
    assert first.mailbox.lost == second.mailbox.lost != []
    assert serialize(first.state) == serialize(second.state)
    other = run(federation, Faults(loss=0.2), wait_policy, seed=3)
    assert other.mailbox.lost != first.mailbox.lost


def test_a_meter_counts_what_the_mailbox_counts(federation: Federation) -> None:
    meters: list[MeteredTransport] = []
    plan = make_plan(federation, fedavg(SOLVER), 2)

    def connect(host: ClientRuntime) -> MeteredTransport:
        meters.append(MeteredTransport(InProcessTransport(host)))
        return meters[0]

    running = FederatedRun(plan, SerialExecutor(torch.device("cpu")), None, SilentProgress(), connect)
    running.play_rounds()
    told = meters[0].meters
    assert sum(m.bytes_up for m in told.values()) == running.mailbox.traffic.wire_up
    assert {m.asked for m in told.values()} == {m.answered for m in told.values()} == {2}
    assert not meters[0].waited_for()


def test_faults_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"transport\.faults\.loss is 1\.5"):
        Faults(loss=1.5)
