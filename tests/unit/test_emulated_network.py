"""An emulated network computes how long messages take, without waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.runs import make_plan, run_rounds, start_run
from tests.transports import AnsweringTransport

from motet.algorithms import fedavg, fedsplit, spfl_like
from motet.core.errors import ConfigError
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import execute_plan
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.emulated_network import Bandwidth, Network, read_trace
from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.requests import Reply, Request
from motet.wire import measure_size, serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
MEGABYTE = 1_000_000


def test_a_constant_rate_gives_the_transfer_time() -> None:
    one_megabyte_per_second = Bandwidth((0.0,), (8.0,))
    assert one_megabyte_per_second.finish_time(3.0, MEGABYTE) == pytest.approx(4.0)
    assert one_megabyte_per_second.finish_time(3.0, 0) == 3.0


def test_a_changing_rate_repeats_periodically() -> None:
    bandwidth = Bandwidth((0.0, 10.0), (8.0, 0.0))  # ten seconds at a megabyte per second, ten seconds without a link
    assert bandwidth.finish_time(0.0, 4 * MEGABYTE) == pytest.approx(4.0)
    assert bandwidth.finish_time(0.0, 12 * MEGABYTE) == pytest.approx(22.0)
    assert bandwidth.finish_time(8.0, 4 * MEGABYTE) == pytest.approx(22.0)
    assert bandwidth.finish_time(15.0, MEGABYTE) == pytest.approx(21.0)
    assert bandwidth.finish_time(2020.0, 11 * MEGABYTE) == pytest.approx(2041.0)


def answer_with_megabyte(request: Request) -> Reply:
    return Reply(request.id, request.client, torch.zeros(250_000))


def test_an_exchange_takes_as_long_as_its_slowest_client() -> None:
    network = Network(down=(8.0, 80.0), up=(4.0,), latency=(0.5, 0.0), compute_seconds=(10.0,))
    emulated = EmulatedTransport(AnsweringTransport(answer_with_megabyte), network, ("a", "b", "c"))
    requests = [Request(i, client, 0, "p.m", torch.zeros(500_000)) for i, client in enumerate("abc")]
    for request in requests:
        emulated.send(request)
    replies = [emulated.receive(1.0) for _ in requests]
    megabits_down, megabits_up = (8 * measure_size(message).wire / 1e6 for message in (requests[0], replies[0]))
    slowest = 0.5 + megabits_down / 8 + 10 + 0.5 + megabits_up / 4
    assert emulated.seconds == pytest.approx(slowest, abs=1e-3)
    emulated.send(Request(-1, "a", 1, "evaluate.report_metrics", None))
    emulated.receive(1.0)
    assert emulated.seconds == pytest.approx(slowest, abs=1e-3)  # an evaluation takes no time
    emulated.send(Request(7, "b", 1, "p.m", None))
    assert emulated.seconds == pytest.approx(slowest, abs=1e-3)  # sent when the last reply had arrived
    emulated.receive(1.0)
    assert emulated.seconds == pytest.approx(slowest + 10 + megabits_up / 4, abs=0.01)


def test_the_clock_does_not_change_the_result_of_a_run(federation: Federation) -> None:
    plain = run_rounds(federation, fedavg(SOLVER))
    timed = run_rounds(federation, fedavg(SOLVER), network=Network())
    assert serialize(plain.state) == serialize(timed.state)


def test_a_run_ends_with_the_round_that_passes_the_limit_of_the_clock(federation: Federation) -> None:
    running = start_run(federation, fedavg(SOLVER), 9, network=Network(compute_seconds=(2.0,), max_seconds=5.0))
    running.run_rounds()
    assert (running.rounds, running.is_finished) == (3, True)
    assert "network.max_seconds is 5" in running.engine.stop_reason
    assert running.storage.metrics.has_scores(3, "global")
    with pytest.raises(ConfigError, match="above 0"):
        Network(max_seconds=0.0)


def test_less_traffic_takes_less_time(federation: Federation) -> None:
    def measure_seconds(algorithm: object) -> float:
        running = run_rounds(federation, algorithm, 2, network=Network(down=(1.0,), up=(0.1, 0.5)))
        assert running.engine.network is not None
        return running.engine.network.seconds

    whole_model = measure_seconds(fedavg(SOLVER))
    assert 0 < measure_seconds(fedsplit(SOLVER, c=1, embeddings="local")) < 0.8 * whole_model
    assert measure_seconds(spfl_like(SOLVER)) > whole_model  # two exchanges per round


def test_a_resumed_run_continues_the_clock(federation: Federation, tmp_path: Path) -> None:
    def run_with_folder(count: int, folder: Path, resume: bool = False) -> float:
        folder.mkdir(exist_ok=True)
        plan = make_plan(federation, fedavg(SOLVER), count, network=Network())
        result = execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=folder, resume=resume)
        return result.traffic.network_seconds

    uninterrupted = run_with_folder(3, tmp_path / "uninterrupted")
    run_with_folder(1, tmp_path / "resumed")
    assert run_with_folder(3, tmp_path / "resumed", resume=True) == pytest.approx(uninterrupted, rel=1e-12)


def test_clients_take_the_traces_in_turn(tmp_path: Path) -> None:
    (tmp_path / "bus.csv").write_text("seconds,down,up\n0,8,1\n5,0,0\n")
    (tmp_path / "home.csv").write_text("seconds,down,up\n0,100,50\n")
    network = Network(traces=(str(tmp_path / "bus.csv"), str(tmp_path / "home.csv")))
    assert network.link_profile(0).down == network.link_profile(2).down == Bandwidth((0.0, 5.0), (8.0, 0.0))
    assert network.link_profile(1).up == Bandwidth((0.0,), (50.0,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seconds,down\n0,1\n", "expected numbers: seconds, down, up"),
        ("seconds,down,up\n0,fast,1\n", "expected numbers"),
        ("seconds,down,up\n3,1,1\n", "must start at 0 and increase"),
        ("seconds,down,up\n0,1,1\n0,2,2\n", "must start at 0 and increase"),
        ("seconds,down,up\n", "must start at 0"),
        ("seconds,down,up\n0,1,0\n1,1,0\n", "'up' in"),
    ],
)
def test_an_invalid_trace_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "invalid.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_trace(tmp_path / "invalid.csv")


def test_an_invalid_network_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"network\.up is \[0\.0\]"):
        Network(up=(0.0,))
    with pytest.raises(ConfigError, match=r"network\.latency is \[-1\.0\]"):
        Network(latency=(-1.0,))
    with pytest.raises(ConfigError, match=r"network\.traces: 'nowhere\.csv' does not exist"):
        Network(traces=("nowhere.csv",)).link_profile(0)
