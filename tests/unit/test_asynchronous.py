"""Asynchronous simulations: replies arrive in the order of a virtual clock, and FedBuff adds them by its equations."""

from __future__ import annotations

import heapq

import pytest
import torch
from tests.runs import start_run
from tests.transports import AnsweringTransport

from motet.algorithms import fedavg, fedbuff
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.rng import Seed
from motet.core.script import Exchange
from motet.core.weighted import Weighted
from motet.experiment.build.federation import Federation
from motet.experiment.loop.client_sampling import sample_idle_clients
from motet.experiment.recipe.run_config import CohortConfig
from motet.learning.solver import Solver
from motet.transport.async_network import AsyncTransport
from motet.transport.emulated_network import Network
from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.requests import Request
from motet.transport.wait_policy import WaitPolicy

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
POLICY = WaitPolicy(buffer=2, staleness_exponent=0.5)


def asynchronous(work: tuple[float, ...], concurrency: int) -> AsyncTransport:
    network = Network(down=(1e9,), up=(1e9,), latency=(0.0,), compute_seconds=work)
    clients = tuple("abcdefgh")
    return AsyncTransport(EmulatedTransport(AnsweringTransport(), network, clients), concurrency)


def test_replies_arrive_by_the_clock_and_a_waiting_client_starts_when_one_replies() -> None:
    transport = asynchronous((10.0, 3.0, 4.0, 2.0), concurrency=2)
    for number, client in enumerate("abcd", 1):
        transport.send(Request(number, client, 0, "fedbuff.train", None))
    arrivals = [(reply.client, transport.emulated.seconds) for _ in range(4) if (reply := transport.receive(1.0))]
    # a (10 s) and b (3 s) start at 0, c (4 s) at 3, d (2 s) at 7
    assert [client for client, _ in arrivals] == ["b", "c", "d", "a"]
    assert [seconds for _, seconds in arrivals] == pytest.approx([3.0, 7.0, 9.0, 10.0], abs=1e-5)
    assert transport.receive(1.0) is None


def test_requests_of_an_evaluation_take_no_time() -> None:
    transport = asynchronous((5.0,), concurrency=1)
    transport.send(Request(1, "a", 0, "fedbuff.train", None))
    transport.send(Request(-1, "b", 0, "evaluate.report_metrics", None))
    first, second = transport.receive(1.0), transport.receive(1.0)
    assert first is not None
    assert second is not None
    assert (first.id, second.id, round(transport.emulated.seconds, 3)) == (-1, 1, 5.0)


def test_the_update_is_the_sum_of_discounted_updates_divided_by_the_buffer(federation: Federation) -> None:
    """Algorithm 1 of Nguyen et al.: 1/K Σ s(τ) Δ, for K = 3 replies with staleness 0, 1 and 3."""
    algorithm = fedbuff(SOLVER, buffer=3)
    params = federation.model.initial_params
    state = algorithm.init(InitialModels(params, federation.clients))
    script = algorithm.round(state, Round(0, 1, ("a",), Seed(0), None))
    exchange = next(script)
    assert isinstance(exchange, Exchange)
    collector = exchange.collector()
    policy = WaitPolicy(buffer=3, staleness_exponent=0.5)
    for delta, staleness in ((1.0, 0), (2.0, 1), (4.0, 3)):
        update = Params(params.layout, torch.full_like(params.flat, delta))
        collector.add("a", Weighted(update, 1.0).scale_weight(policy.staleness_weight(staleness)))
    with pytest.raises(StopIteration) as end:
        script.send(collector.value())
    expected = (1.0 + 2.0 * 2**-0.5 + 4.0 * 4**-0.5) / 3
    torch.testing.assert_close(end.value.value.params.flat - params.flat, torch.full_like(params.flat, expected))


def test_staleness_and_time_follow_a_simulation_of_the_clients(federation: Federation) -> None:
    """Two of four clients work at a time, and a round ends after two replies."""
    work = (1.0, 2.0, 5.0, 9.0)
    run = start_run(
        federation, fedbuff(SOLVER, buffer=2), 4, cohort=CohortConfig(2), wait_policy=POLICY,
        network=Network(down=(1e9,), up=(1e9,), latency=(0.0,), compute_seconds=work),
    )  # fmt: skip
    names = list(federation.clients)
    queue: list[str] = []
    under_way: list[tuple[float, str]] = []
    clock = 0.0
    for _ in range(4):
        queue += run.engine.sample_next_cohort()
        run.run_rounds(until=run.rounds + 1)
        for _ in range(2):
            while queue and len(under_way) < 2:
                client = queue.pop(0)
                heapq.heappush(under_way, (clock + work[names.index(client)], client))
            clock, _ = heapq.heappop(under_way)
            if queue:
                client = queue.pop(0)
                heapq.heappush(under_way, (clock + work[names.index(client)], client))
        assert run.engine.network is not None
        assert run.engine.network.seconds == pytest.approx(clock, abs=1e-3)
        assert len(run.engine.mailbox.pending) == len(queue) + len(under_way) == 1


def test_with_equal_clients_and_a_buffer_of_all_it_is_fedavg_with_uniform_weights(federation: Federation) -> None:
    everyone = len(federation.clients)
    policy = WaitPolicy(buffer=everyone, staleness_exponent=0.5)
    runs = [
        start_run(federation, fedbuff(SOLVER, buffer=everyone), 2, wait_policy=policy),
        start_run(federation, fedavg(SOLVER, weighting="uniform"), 2),
    ]
    for run in runs:
        run.run_rounds()
    torch.testing.assert_close(runs[0].state.params.flat, runs[1].state.params.flat)


def test_over_selection_continues_with_the_fastest_clients(federation: Federation) -> None:
    work = (9.0, 5.0, 2.0, 1.0)
    run = start_run(
        federation, fedavg(SOLVER), 2, wait_policy=WaitPolicy(quorum=0.5, stop_at_quorum=True),
        network=Network(down=(1e9,), up=(1e9,), latency=(0.0,), compute_seconds=work),
    )  # fmt: skip
    for seconds in (2.0, 4.0):
        run.run_rounds(until=run.rounds + 1)
        assert run.engine.mailbox.replied.keys() == set(list(federation.clients)[2:])
        assert run.engine.network is not None
        assert run.engine.network.seconds == pytest.approx(seconds, abs=1e-3)


def test_idle_clients_are_sampled_uniformly_without_those_that_are_busy() -> None:
    clients = tuple("abcdef")
    counts = dict.fromkeys(clients, 0)
    for round in range(300):
        sample = sample_idle_clients(clients, 2, round, Seed(1), {"a", "d"})
        assert len(set(sample)) == 2
        for client in sample:
            counts[client] += 1
    assert counts["a"] == counts["d"] == 0
    assert all(110 < counts[client] < 190 for client in "bcef")
    assert sample_idle_clients(clients, 9, 0, Seed(1), {"a"}) == tuple("bcdef")


def test_a_spread_makes_devices_and_links_log_normal() -> None:
    network = Network(compute_seconds=(1.0,), example_seconds=0.5, device_spread=0.7, link_spread=0.7)
    clients = tuple(str(i) for i in range(400))
    emulated = EmulatedTransport(AnsweringTransport(), network, clients, lambda client: 4)
    for number, client in enumerate(clients, 1):
        emulated.send(Request(number, client, 0, "fedbuff.train", None))
    profiles = list(emulated.profiles.values())
    for values in ([p.compute_seconds / 3.0 for p in profiles], [100.0 / p.down.rates[0] for p in profiles]):
        logs = torch.tensor(values).log()
        assert abs(float(logs.mean())) < 0.1
        assert abs(float(logs.std()) - 0.7) < 0.07


def test_impossible_buffers_are_explained(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="4 clients work at a time"):
        start_run(federation, fedbuff(SOLVER), 1, wait_policy=WaitPolicy(buffer=9))
    with pytest.raises(ConfigError, match="at least 1"):
        WaitPolicy(buffer=0)
    assert WaitPolicy(buffer=2).staleness_weight(3) == 0.5
    assert WaitPolicy().staleness_weight(3) == 0.0
