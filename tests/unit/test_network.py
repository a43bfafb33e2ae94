"""An emulated network keeps time without waiting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import fedavg, fedsplit, spfl_like
from motet.core.errors import ConfigError
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.emulated_network import Bandwidth, EmulatedTransport, Network, read_trace
from motet.transport.requests import Reply, Request
from motet.wire import measure_size, serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
RunRounds = Callable[..., FederatedRun]


def test_bytes_take_their_time() -> None:
    assert Bandwidth((0.0,), (8.0,)).through(3.0, 1_000_000) == pytest.approx(4.0)  # a megabyte a second
    assert Bandwidth((0.0,), (8.0,)).through(3.0, 0) == 3.0


def test_a_rate_that_changes_is_followed_over_and_over() -> None:
    rate = Bandwidth((0.0, 10.0), (8.0, 0.0))  # ten seconds of a megabyte a second, ten of nothing
    assert rate.through(0.0, 4_000_000) == pytest.approx(4.0)
    assert rate.through(0.0, 12_000_000) == pytest.approx(22.0)
    assert rate.through(8.0, 4_000_000) == pytest.approx(22.0)
    assert rate.through(15.0, 1_000_000) == pytest.approx(21.0)
    assert rate.through(2020.0, 11_000_000) == pytest.approx(2041.0)


class Echo:
    """Answers every request with a megabyte."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []

    def send(self, request: Request) -> None:
        self.waiting.append(request)

    def receive(self, timeout: float) -> Reply | None:
        if not self.waiting:
            return None
        request = self.waiting.pop()
        return Reply(request.id, request.client, torch.zeros(250_000))

    def close(self) -> None: ...


def test_a_question_takes_as_long_as_its_slowest_client() -> None:
    network = Network(down=(8.0, 80.0), up=(4.0,), latency=(0.5, 0.0), work=(10.0,))
    emulated = EmulatedTransport(Echo(), network, ("a", "b", "c"))
    requests = [Request(i, name, 0, "p.m", torch.zeros(500_000)) for i, name in enumerate("abc")]
    for request in requests:
        emulated.send(request)
    replies = [emulated.receive(1.0) for _ in requests]
    down, up = (8 * measure_size(m).wire / 1e6 for m in (requests[0], replies[0]))
    slowest = 0.5 + down / 8 + 10 + 0.5 + up / 4
    assert emulated.seconds == pytest.approx(slowest, abs=1e-3)
    emulated.send(Request(7, "b", 1, "p.m", None))
    assert emulated.seconds == pytest.approx(slowest, abs=1e-3)  # asked when all had answered
    emulated.receive(1.0)
    assert emulated.seconds == pytest.approx(slowest + 10 + up / 4, abs=0.01)


def test_the_clock_changes_nothing_and_less_traffic_takes_less_time(federation: Federation, rounds: RunRounds) -> None:
    def seconds(algorithm: object) -> float:
        running = rounds(federation, algorithm, 2, network=Network(down=(1.0,), up=(0.1, 0.5)))
        assert running.emulated is not None
        return running.emulated.seconds

    plain = rounds(federation, fedavg(SOLVER))
    timed = rounds(federation, fedavg(SOLVER), network=Network())
    assert serialize(plain.state) == serialize(timed.state)
    whole, split = seconds(fedavg(SOLVER)), seconds(fedsplit(SOLVER, c=1, embeddings="local"))
    assert 0 < split < 0.8 * whole
    assert seconds(spfl_like(SOLVER)) > whole  # two questions a round


def test_a_run_that_stopped_goes_on_at_the_same_hour(federation: Federation, tmp_path: Path) -> None:
    def played(count: int, folder: Path, resume: bool = False) -> float:
        folder.mkdir(exist_ok=True)
        plan = make_plan(federation, fedavg(SOLVER), count, network=Network())
        return execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=folder, resume=resume)[
            0
        ].traffic.network_seconds

    whole = played(3, tmp_path / "whole")
    played(1, tmp_path / "parts")
    assert played(3, tmp_path / "parts", resume=True) == pytest.approx(whole, rel=1e-12)


def test_traces_are_read_and_dealt_out(tmp_path: Path) -> None:
    (tmp_path / "bus.csv").write_text("seconds,down,up\n0,8,1\n5,0,0\n")
    (tmp_path / "home.csv").write_text("seconds,down,up\n0,100,50\n")
    network = Network(traces=(str(tmp_path / "bus.csv"), str(tmp_path / "home.csv")))
    assert network.line(0).down == network.line(2).down == Bandwidth((0.0, 5.0), (8.0, 0.0))
    assert network.line(1).up == Bandwidth((0.0,), (50.0,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seconds,down\n0,1\n", "expected numbers: seconds, down, up"),
        ("seconds,down,up\n0,fast,1\n", "expected numbers"),
        ("seconds,down,up\n3,1,1\n", "must begin with 0 and grow"),
        ("seconds,down,up\n0,1,1\n0,2,2\n", "must begin with 0 and grow"),
        ("seconds,down,up\n", "must begin with 0"),
        ("seconds,down,up\n0,1,0\n1,1,0\n", "'up' in"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "odd.csv").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_trace(tmp_path / "odd.csv")


def test_a_network_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"network\.up is \[0\.0\]"):
        Network(up=(0.0,))
    with pytest.raises(ConfigError, match=r"network\.latency is \[-1\.0\]"):
        Network(latency=(-1.0,))
    with pytest.raises(ConfigError, match=r"there is no file 'nowhere\.csv'"):
        Network(traces=("nowhere.csv",)).line(0)
