"""The noise has the stated size, in the stated place, and its privacy cost is counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
import torch
from tests.runs import make_plan, make_round
from tests.sums import TOLERANT, LossyTransport, VectorProgram, make_runtime, run_sum

from motet.algorithms import centralized, fedavg, isolated
from motet.codecs.clip import Clip, limit_norm
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.script import rewrite_sums
from motet.core.weighted import Weighted
from motet.experiment.build.component_builders import build_privacy
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.experiment.recipe.run_config import CohortConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.privacy import central, local
from motet.privacy.accountant import PrivacyAccountant
from motet.privacy.dp_sum import ClipRequest, PrivateSum
from motet.report.run_callback import RunCallback
from motet.secure import secagg
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Request
from motet.wire import serialize

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)


def make_constant_vectors(clients: int, size: int, value: float) -> dict[str, Weighted]:
    params = Params.from_tensors({"x": torch.full((size,), value)})
    return {f"c{k}": Weighted(params, float(1 + k)) for k in range(clients)}


def private_mean(vectors: dict[str, Weighted], mechanism: PrivateSum, secure: Any = None) -> torch.Tensor:
    """Return the mean that the server reads, with noise and optionally in a secure sum."""
    program = VectorProgram(vectors)
    runtime = make_runtime([program, mechanism, *([secure] if secure else [])])
    script = rewrite_sums(mechanism.make_summation(Seed(3), lambda clients, key: None), program.round())
    script = rewrite_sums(secure, script) if secure else script
    return run_sum(script, Mailbox(LossyTransport(runtime), TOLERANT)).value.flat


# ---- Clipping and noise ---------------------------------------------------------------------------------------------


def test_only_a_vector_above_the_limit_is_clipped() -> None:
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    assert limit_norm(long, 1.0).tolist() == pytest.approx([0.6, 0.8])
    assert limit_norm(short, 1.0) is short
    with pytest.raises(ConfigError, match="above 0"):
        Clip(0.0)


@pytest.mark.parametrize("secure", [None, secagg(min_clients=3)])
def test_clients_are_clipped_and_have_equal_weights(secure: Any) -> None:
    loud = Weighted(Params.from_tensors({"x": torch.full((4,), 3.0)}), 900.0)
    vectors = {**make_constant_vectors(3, 4, 0.25), "loud": loud}
    mean = private_mean(vectors, central(clip=1.0, noise=1e-9), secure)  # norms 0.5, 0.5, 0.5; and 6, clipped to 1
    assert mean.tolist() == pytest.approx([(3 * 0.25 + 0.5) / 4] * 4, abs=1e-6)


@pytest.mark.parametrize("secure", [None, secagg(range=16.0)])
@pytest.mark.parametrize(("make_mechanism", "deviation"), [(central, 1.5 * 0.2 / 4), (local, 1.5 * 0.2 / math.sqrt(4))])
def test_the_noise_in_the_mean_has_the_stated_deviation(make_mechanism: Any, deviation: float, secure: Any) -> None:
    mean = private_mean(make_constant_vectors(4, 40_000, 0.0), make_mechanism(clip=0.2, noise=1.5), secure)
    assert float(mean.std()) == pytest.approx(deviation, rel=0.03)
    assert abs(float(mean.mean())) < 5 * deviation / math.sqrt(40_000)


@pytest.mark.parametrize("make_mechanism", [central, local])
def test_noise_is_new_every_time_unless_it_is_seeded(make_mechanism: Any) -> None:
    vectors = make_constant_vectors(3, 5, 0.0)
    first, second = (private_mean(vectors, make_mechanism(1.0, 1.0)) for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (private_mean(vectors, make_mechanism(1.0, 1.0, seeded=True)) for _ in range(2))
    assert torch.equal(first, second)


# ---- Accounting -----------------------------------------------------------------------------------------------------


def make_accountant(
    mechanism: PrivateSum, client_count: int = 10, cohort_size: int = 10, has_secret_cohorts: bool = False
) -> PrivacyAccountant:
    return PrivacyAccountant(mechanism, client_count, cohort_size, has_secret_cohorts)


def epsilon_after(rounds: int, mechanism: PrivateSum) -> float:
    """Return epsilon after some rounds with all ten clients."""
    accountant = make_accountant(mechanism)
    for _ in range(rounds):
        accountant.record_sum([f"c{k}" for k in range(10)])
    return accountant.epsilon()


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 5), (8.0, 100)])
def test_epsilon_is_slightly_above_the_exact_value_of_the_gaussian_mechanism(noise: float, rounds: int) -> None:
    exact = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(rounds), 1e-5)
    assert exact <= epsilon_after(rounds, central(1.0, noise)) <= 1.2 * exact


def test_local_noise_counts_half_because_a_client_is_replaced() -> None:
    assert epsilon_after(3, local(1.0, 4.0)) == pytest.approx(epsilon_after(3, central(1.0, 2.0)))


def test_secret_cohorts_cost_less() -> None:
    mechanism = central(1.0, 2.0)
    predictable, secret = (make_accountant(mechanism, 1000, 10, is_secret) for is_secret in (False, True))
    for accountant in (predictable, secret):
        for k in range(20):
            accountant.record_sum(["busy", f"c{k}"])
    assert secret.epsilon() < predictable.epsilon() / 5


def test_with_predictable_cohorts_the_most_frequent_client_counts() -> None:
    mechanism = central(1.0, 2.0)
    with_busy_client, without = make_accountant(mechanism, 1000), make_accountant(mechanism, 1000)
    for k in range(20):
        with_busy_client.record_sum(["busy", f"c{k}"])
        without.record_sum([f"c{k}"])
    assert with_busy_client.epsilon() == pytest.approx(epsilon_after(20, mechanism))
    assert without.epsilon() == pytest.approx(epsilon_after(1, mechanism))


def test_epsilon_is_zero_at_first_and_the_next_sum_can_be_predicted() -> None:
    accountant = make_accountant(central(1.0, 2.0))
    assert accountant.epsilon() == 0.0
    predicted = accountant.epsilon(["c1"])
    accountant.record_sum(["c1"])
    assert accountant.epsilon() == predicted


# ---- In a run -------------------------------------------------------------------------------------------------------


def make_private_plan(federation: Federation, rounds: int, **options: Any) -> RunPlan:
    mechanism = central(clip=0.5, noise=2.0, seeded=True, **options)
    return make_plan(federation, fedavg(SOLVER), rounds, privacy=mechanism, secure=secagg())


def make_executor() -> SerialExecutor:
    return SerialExecutor(torch.device("cpu"))


def make_running(plan: RunPlan) -> FederatedRun:
    return FederatedRun(plan, make_executor())


def test_a_run_stops_before_it_exceeds_its_budget(federation: Federation) -> None:
    two_rounds = epsilon_after(2, central(1.0, 2.0))
    result = execute_plan(make_private_plan(federation, 9, budget=two_rounds * 1.001), make_executor())
    assert result.rounds == 2
    assert result.epsilon == pytest.approx(two_rounds)
    assert [number for number, _ in result.metrics.curve("epsilon", split="privacy")] == [1, 2]
    assert result.final["accuracy"] >= 0


@pytest.mark.parametrize("algorithm", [centralized(SOLVER), isolated(SOLVER)], ids=["centralized", "isolated"])
def test_a_bound_that_sends_no_updates_has_no_epsilon_and_is_not_stopped_by_a_budget(
    algorithm: Algorithm, federation: Federation
) -> None:
    mechanism, notes = central(clip=0.5, noise=2.0, budget=epsilon_after(1, central(1.0, 2.0)) * 1.001), []

    class Notes(RunCallback):
        def on_note(self, text: str) -> None:
            notes.append(text)

    plan = make_plan(federation, algorithm, 3, privacy=mechanism)
    result = execute_plan(plan, make_executor(), callback=Notes())
    assert (result.rounds, result.epsilon) == (3, None)
    assert any("it has no ε" in note for note in notes)


def test_a_budget_below_the_first_round_is_rejected(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"first round alone would spend ε = .* privacy.budget is 0.1"):
        make_running(make_private_plan(federation, 9, budget=0.1))


def test_a_resumed_run_continues_the_accounting(federation: Federation, tmp_path: Path) -> None:
    for name in ("uninterrupted", "resumed"):
        (tmp_path / name).mkdir()
    uninterrupted = execute_plan(make_private_plan(federation, 3), make_executor(), folder=tmp_path / "uninterrupted")
    execute_plan(make_private_plan(federation, 2), make_executor(), folder=tmp_path / "resumed")
    resumed = execute_plan(make_private_plan(federation, 3), make_executor(), folder=tmp_path / "resumed", resume=True)
    assert serialize(resumed.state) == serialize(uninterrupted.state)
    assert resumed.epsilon == pytest.approx(epsilon_after(3, central(1.0, 2.0)))


@pytest.mark.parametrize(
    ("address", "payload"),
    [
        ("fedavg.train", None),
        ("private.clipped", ClipRequest("fedavg.train", None)),
        ("evaluate.report_metrics", None),
    ],
)
def test_a_client_reveals_nothing_outside_the_wrappers(address: str, payload: Any, federation: Federation) -> None:
    running = make_running(make_private_plan(federation, 1))
    request = Request(1, federation.clients[0], 0, address, payload)
    reply = next(running.engine.runtime.answer_requests(iter([request])))
    assert "only available inside" in str(reply.error)


def test_a_server_cannot_skip_the_clipping_in_a_secure_sum(federation: Federation) -> None:
    running = make_running(make_private_plan(federation, 1))
    first_round = make_round(federation, rounds=1)
    script = running.plan.algorithm.round(running.state, first_round)
    with pytest.raises(Exception, match=r"fedavg.train is only available inside private"):
        running.engine.run_evaluation(script)  # with masks, and without noise


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "central", "noise": 1.0}, "option 'clip' is missing"),
        ({"type": "central", "clip": 1.0, "noise": 0.0}, "privacy.noise is 0.0"),
        ({"type": "local", "clip": -1.0, "noise": 1.0}, "privacy.clip is -1.0"),
        ({"type": "central", "clip": 1.0, "noise": 1.0, "delta": 2}, "privacy.delta is 2"),
        ({"type": "centrall", "clip": 1.0, "noise": 1.0}, "Did you mean 'central'"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_privacy(RunConfig.from_settings("r", {"privacy": options}), fedavg())


def test_seeded_cohorts_count_as_secret(federation: Federation) -> None:
    plan = make_plan(federation, fedavg(SOLVER), 1, cohort=CohortConfig(3, "seeded"), privacy=central(1.0, 2.0))
    accountant = make_running(plan).engine.accountant
    assert accountant is not None
    assert (accountant.has_secret_cohorts, accountant.cohort_size, accountant.client_count) == (True, 3, 4)
