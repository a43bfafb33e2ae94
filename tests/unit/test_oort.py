"""Cohorts by utility and speed: the equations of Oort with numbers computed by hand, resuming, and what is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.networks import ClientThreads, make_admission, make_setup, wait_for_clients
from tests.runs import make_plan, start_run

from motet.algorithms import fedavg, fedbuff
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.oort import (
    CLIENT,
    DURATION,
    LAST_ROUND,
    PICKS,
    UTILITY,
    OortState,
    UtilityRecorder,
    learn_from_round,
    sample_by_utility,
    score_clients,
    statistical_utility,
)
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import CohortConfig, OortConfig
from motet.learning.solver import Solver
from motet.secure import SECURE
from motet.transport.admission import RunFinished
from motet.transport.connections import Connections
from motet.transport.emulated_network import Network
from motet.transport.grpc import GrpcServerLink, serve_grpc
from motet.transport.mailbox import Observation
from motet.transport.wait_policy import WaitPolicy
from motet.wire import serialize

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
NETWORK = Network(compute_seconds=(1.0, 2.0, 5.0, 9.0))
OORT = CohortConfig(2, "oort")
CONFIG = OortConfig()
REPORTING = CohortConfig(2, "oort", OortConfig(report_utility=True))


def explored(*columns: tuple[float, ...]) -> np.ndarray:
    return np.array(columns, np.float64).T


def test_the_statistical_utility_is_the_size_times_the_root_of_the_mean_squared_loss() -> None:
    assert statistical_utility(np.array([1.0, 2.0, 2.0]) ** 2, 30) == pytest.approx(30 * 3**0.5)
    assert statistical_utility(np.zeros(0), 30) == 0.0


def test_scores_follow_the_equations_of_the_paper() -> None:
    """The third utility is clipped at the 95th percentile, 95. T is the median of the durations, 20 s."""
    table = explored((0, 0.0, 10.0, 4, 1), (1, 95.0, 20.0, 2, 1), (2, 100.0, 40.0, 8, 1))
    scores = score_clients(table, pace=0.5, penalty=2.0, round=10)
    log = float(np.log(10.0))
    expected = [
        0.0 + (0.1 * log / 4) ** 0.5,
        1.0 + (0.1 * log / 2) ** 0.5,
        (1.0 + (0.1 * log / 8) ** 0.5) * (20.0 / 40.0) ** 2,
    ]
    np.testing.assert_allclose(scores, expected)
    np.testing.assert_allclose(score_clients(table, 1.0, 2.0, 10)[2], 4 * expected[2])  # T is the longest duration


def test_lies_about_the_utility_change_neither_other_clients_nor_the_pace() -> None:
    """The liars are counted as the most useful of the honest clients. 1 of 20 may lie."""
    honest = [(number, 10.0 + number, 1.0, 3, 1) for number in range(19)]
    for claim in (28.5, 1e12):
        scores = score_clients(explored(*honest, (19, claim, 1.0, 3, 1)), pace=0.3, penalty=2.0, round=5)
        expected = np.append(np.arange(19) / 18, 1.0) + (0.1 * np.log(5) / 3) ** 0.5
        np.testing.assert_allclose(scores, expected)
    state = OortState(explored(*honest), (), 0.3)
    seen = {"19": Observation(1e12, 1.0), "5": Observation(15.0, 1.0)}
    assert learn_from_round(CONFIG, state, tuple(map(str, range(20))), 4, seen).achieved == (28.0 + 15.0,)


def test_the_pacer_raises_the_preferred_duration_when_the_utility_falls() -> None:
    config, clients = OortConfig(window=2, pace=0.3), tuple("abc")
    state, paces = OortState.initial(config), []
    for round, utility in enumerate([5.0, 5.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0], 1):
        state = learn_from_round(config, state, clients, round, {"b": Observation(utility, 1.0)})
        paces.append(round_to_percent(state.pace))
    # Rounds 3 and 4 achieve 8 after 10: once more. Rounds 5 and 6 achieve the same 8, and 7 and 8 more: no change.
    assert paces == [30, 30, 30, 35, 35, 35, 35, 35]
    assert state.explored[:, 0].tolist() == [1.0, 9.0, 1.0, 8.0, 8.0]
    assert len(state.achieved) == 4


def round_to_percent(share: float) -> int:
    return round(100 * share)


def test_a_round_replaces_what_is_known_about_its_clients_and_keeps_the_others() -> None:
    state = OortState(explored((1, 5.0, 2.0, 1, 1), (3, 7.0, 4.0, 1, 2)), (), 0.3)
    seen = {"d": Observation(8.0, 1.0), "a": Observation(6.0, 3.0)}
    after = learn_from_round(CONFIG, state, tuple("abcd"), 2, seen).explored
    assert after[CLIENT].tolist() == [0, 1, 3]
    assert after[UTILITY].tolist() == [6.0, 5.0, 8.0]
    assert after[DURATION].tolist() == [3.0, 2.0, 1.0]
    assert after[LAST_ROUND].tolist() == [2, 1, 2]
    assert after[PICKS].tolist() == [1, 1, 3]


def test_a_cohort_has_new_clients_and_useful_fast_ones() -> None:
    """After 49 rounds ε = 0.9 · 0.98⁴⁹ = 0.334: of ten clients, six are explored ones and four are new."""
    clients = tuple(f"{i:03}" for i in range(100))
    columns = [(i, 10.0 + (i < 20), 1.0 + 9.0 * (10 <= i < 30), 40, 5) for i in range(40)]
    state = OortState(explored(*columns), (), 0.3)
    counts = np.zeros(100)
    for seed in range(200):
        cohort = sample_by_utility(CONFIG, state, clients, 10, 49, Seed(seed))
        assert len(set(cohort)) == 10
        numbers = [int(client) for client in cohort]
        assert sum(number >= 40 for number in numbers) == 4
        counts[numbers] += 1
    assert counts[:10].sum() == 6 * 200  # useful and fast; those from 10 to 20 are useful and slow
    assert counts[:10].min() > 80
    assert counts[40:].min() > 0
    assert sample_by_utility(CONFIG, state, clients, 10, 49, Seed(1)) == sample_by_utility(
        CONFIG, state, clients, 10, 49, Seed(1)
    )


def test_busy_and_worn_out_clients_are_left_out_and_missing_new_ones_replaced() -> None:
    clients = tuple("abcdef")
    state = OortState(explored(*((i, 1.0 + i, 1.0, 1, 1 + i) for i in range(5))), (), 1.0)
    assert sample_by_utility(CONFIG, state, clients, 5, 3, Seed(0), busy={"c"}) == tuple("abdef")
    limited = replace(CONFIG, max_picks=4)  # d and e took part four and five times
    assert sample_by_utility(limited, state, clients, 4, 3, Seed(0)) == tuple("abcf")
    assert sample_by_utility(limited, state, clients, 6, 3, Seed(0)) == clients


def test_new_clients_of_a_large_federation_are_drawn_without_those_that_took_part() -> None:
    clients = tuple(str(i) for i in range(1000))
    state = OortState(explored(*((i, 1.0, 1.0, 1, 1) for i in range(0, 400))), (), 0.3)
    cohort = sample_by_utility(OortConfig(exploration=1.0), state, clients, 20, 0, Seed(3))
    assert len(set(cohort)) == 20
    assert all(int(client) >= 400 for client in cohort)


def test_a_resumed_run_has_the_cohorts_and_the_weights_of_a_run_without_interruption(
    federation: Federation, tmp_path: Path
) -> None:
    def start(folder: Path) -> FederatedRun:
        return start_run(federation, fedavg(SOLVER), 6, cohort=OORT, network=NETWORK, folder=folder)

    whole = start(tmp_path / "whole")
    whole.run_rounds()
    first = start(tmp_path / "parts")
    first.run_rounds(until=3)
    first.save()
    second = start(tmp_path / "parts")
    assert second.resume()
    second.run_rounds()
    a, b = whole.engine.progress, second.engine.progress
    assert a.oort is not None
    assert b.oort is not None
    np.testing.assert_array_equal(a.oort.explored, b.oort.explored)
    assert a.oort.achieved == b.oort.achieved
    assert torch.equal(a.state.params.flat, b.state.params.flat)
    assert a.oort.explored[PICKS].sum() == 12
    works = [NETWORK.compute_seconds[int(number)] for number in a.oort.explored[CLIENT]]
    assert (a.oort.explored[DURATION] > works).all()


def test_trainings_whose_replies_do_not_count_leave_no_utility(federation: Federation) -> None:
    """Else the losses of two rounds would be mixed, and a resumed run, which forgets them, would choose other clients."""
    policy = WaitPolicy(quorum=0.5, stop_at_quorum=True)
    run = start_run(federation, fedavg(SOLVER), 2, cohort=replace(OORT, size=4), network=NETWORK, wait_policy=policy)
    run.run_rounds()
    assert isinstance(run.engine.runtime.recorder, UtilityRecorder)
    assert run.engine.runtime.recorder.squares == {}
    assert len(run.finish().client_scores) == 4, "an evaluation of simulated clients waits for all of them"


def test_a_client_that_misses_the_quorum_is_known_to_be_slow(federation: Federation) -> None:
    """Over-selection: the cohort has all four clients, and the round ends with the two fastest."""
    policy = WaitPolicy(quorum=0.5, stop_at_quorum=True)
    run = start_run(federation, fedavg(SOLVER), 1, cohort=replace(OORT, size=4), network=NETWORK, wait_policy=policy)
    run.run_rounds()
    table = run.engine.progress.oort
    assert table is not None
    assert (table.explored[UTILITY] > 0).tolist() == [True, True, False, False]
    assert run.engine.progress.traffic.network_seconds == pytest.approx(table.explored[DURATION, 1])
    np.testing.assert_allclose(table.explored[DURATION, 2:], table.explored[DURATION, 1])


def test_buffered_rounds_take_idle_clients_by_utility(federation: Federation) -> None:
    policy = WaitPolicy(buffer=1)
    run = start_run(federation, fedbuff(SOLVER, buffer=1), 5, cohort=OORT, network=NETWORK, wait_policy=policy)
    run.run_rounds()
    table = run.engine.progress.oort
    assert table is not None
    assert table.explored[PICKS].sum() == 5
    assert (table.explored[UTILITY] > 0).all()


def test_what_oort_cannot_know_is_explained(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="has no clock"):
        start_run(federation, fedavg(SOLVER), 1, cohort=OORT)
    with pytest.raises(ConfigError, match="secure sums and noise hide"):
        start_run(federation, fedavg(SOLVER), 1, cohort=OORT, network=NETWORK, secure=SECURE["secagg"]())
    with pytest.raises(ConfigError, match="expected a share"):
        OortConfig(pace=1.5)
    with pytest.raises(ConfigError, match="send it only if they are asked"):
        make_plan(federation, fedavg(SOLVER), 1, cohort=OORT, network=NETWORK).check_oort(is_remote=True)
    with pytest.raises(ConfigError, match="has no clock"):
        make_plan(federation, fedavg(SOLVER), 1, cohort=REPORTING).check_oort(is_remote=False)


# ---- Remote clients --------------------------------------------------------------------------------------------------


def run_over_grpc(federation: Federation, network: Network | None) -> FederatedRun:
    """Run four rounds with clients that report their utility over gRPC."""
    connections, threads = Connections(make_admission(*federation.clients)), ClientThreads()
    address = serve_grpc(connections, "127.0.0.1:0")
    setup = make_setup(federation, fedavg(SOLVER), cohort=REPORTING, network=network)
    threads.start(lambda: GrpcServerLink(address), tuple(federation.clients), setup)
    wait_for_clients(connections, len(federation.clients))
    run = start_run(
        federation, fedavg(SOLVER), 4, cohort=REPORTING, network=network, is_remote=True,
        connect=lambda runtime: connections,
    )  # fmt: skip
    run.run_rounds()
    connections.close(RunFinished("done"))
    connections.stop_listening()
    threads.join()
    return run


def test_remote_clients_that_report_their_utility_are_chosen_as_simulated_ones(federation: Federation) -> None:
    remote = run_over_grpc(federation, NETWORK).engine.progress
    simulated = start_run(federation, fedavg(SOLVER), 4, cohort=REPORTING, network=NETWORK)
    simulated.run_rounds()
    assert serialize(remote) == serialize(simulated.engine.progress)  # with utilities, durations and traffic


def test_without_an_emulated_network_the_server_measures_how_long_clients_take(federation: Federation) -> None:
    table = run_over_grpc(federation, None).engine.progress.oort
    assert table is not None
    assert (table.explored[UTILITY] > 0).all()
    assert (table.explored[DURATION] > 0).all()
    assert table.explored[PICKS].sum() == 8
