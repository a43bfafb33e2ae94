"""Noise where it is said to be, as much as is said, and what it has cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
import torch
from tests.runs import make_plan
from tests.sums import PATIENT, Line, Plainly, host_for

from motet.algorithms import fedavg
from motet.codecs.clip import Clip
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import rewrite_sums, run_script
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
from motet.report.progress import SilentProgress
from motet.secure import secagg
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Request
from motet.wire import serialize

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)


def constant(clients: int, size: int, value: float) -> dict[str, Weighted]:
    one = Params.from_tensors({"x": torch.full((size,), value)})
    return {f"c{k}": Weighted(one, float(1 + k)) for k in range(clients)}


def noisy(given: dict[str, Weighted], private: PrivateSum, secure: Any = None) -> torch.Tensor:
    program = Plainly(given)
    host = host_for([program, private, *([secure] if secure else [])])
    script = rewrite_sums(private.sums(Seed(3), lambda members: None), program.round())
    script = rewrite_sums(secure, script) if secure else script
    flat: torch.Tensor = run_script(script, Mailbox(Line(host), PATIENT).ask, lambda job: None).value.flat
    return flat


def test_what_is_longer_than_the_limit_is_cut_to_it_and_the_rest_is_left() -> None:
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    assert Clip(1.0).shortened(long).tolist() == pytest.approx([0.6, 0.8])
    assert Clip(1.0).shortened(short) is short
    with pytest.raises(ConfigError, match="above 0"):
        Clip(0.0)


@pytest.mark.parametrize("secure", [None, secagg(minimum=3)])
def test_clients_are_clipped_and_count_alike(secure: Any) -> None:
    given = {**constant(3, 4, 0.25), "loud": Weighted(Params.from_tensors({"x": torch.full((4,), 3.0)}), 900.0)}
    found = noisy(given, central(clip=1.0, noise=1e-9), secure)  # lengths 0.5, 0.5, 0.5 and 6, which becomes 1
    assert found.tolist() == pytest.approx([(3 * 0.25 + 0.5) / 4] * 4, abs=1e-6)


@pytest.mark.parametrize("secure", [None, secagg(range=16.0)])
@pytest.mark.parametrize(("kind", "expected"), [(central, 1.5 * 0.2 / 4), (local, 1.5 * 0.2 / math.sqrt(4))])
def test_the_noise_in_the_mean_is_as_much_as_is_said(kind: Any, expected: float, secure: Any) -> None:
    found = noisy(constant(4, 40_000, 0.0), kind(clip=0.2, noise=1.5), secure)
    assert float(found.std()) == pytest.approx(expected, rel=0.03)
    assert abs(float(found.mean())) < 5 * expected / math.sqrt(40_000)


@pytest.mark.parametrize("kind", [central, local])
def test_noise_is_new_every_time_unless_it_is_seeded(kind: Any) -> None:
    given = constant(3, 5, 0.0)
    assert not torch.equal(noisy(given, kind(1.0, 1.0)), noisy(given, kind(1.0, 1.0)))
    assert torch.equal(noisy(given, kind(1.0, 1.0, seeded=True)), noisy(given, kind(1.0, 1.0, seeded=True)))


# ---- what it costs ------------------------------------------------------------------------------------------------------


def after(rounds: int, private: PrivateSum, cohort: int = 10, secret: bool = False) -> float:
    ledger = PrivacyAccountant(private, 10, cohort, secret)
    for _ in range(rounds):
        ledger.spend([f"c{k}" for k in range(cohort)])
    return ledger.epsilon()


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 5), (8.0, 100)])
def test_epsilon_is_a_little_above_the_exact_one_of_the_gaussian_mechanism(noise: float, rounds: int) -> None:
    exact = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(rounds), 1e-5)
    assert exact <= after(rounds, central(1.0, noise)) <= 1.2 * exact


def test_local_noise_of_the_same_size_hides_half_as_far() -> None:
    assert after(3, local(1.0, 4.0)) == pytest.approx(after(3, central(1.0, 2.0)))


def test_a_cohort_that_nobody_can_foretell_costs_less_and_one_that_all_can_counts_the_busiest() -> None:
    private = central(1.0, 2.0)
    big, small = (PrivacyAccountant(private, 1000, 10, secret) for secret in (False, True))
    for ledger in (big, small):
        for k in range(20):
            ledger.spend(["busy", f"c{k}"])
    assert small.epsilon() < big.epsilon() / 5
    assert big.epsilon() == pytest.approx(after(20, private))
    other = PrivacyAccountant(private, 1000, 10, False)
    for k in range(20):
        other.spend([f"c{k}"])
    assert other.epsilon() == pytest.approx(after(1, private))


def test_nothing_is_spent_before_the_first_sum_and_the_next_is_known_beforehand() -> None:
    ledger = PrivacyAccountant(central(1.0, 2.0), 10, 10, False)
    assert ledger.epsilon() == 0.0
    before = ledger.epsilon(["c1"])
    ledger.spend(["c1"])
    assert ledger.epsilon() == before


# ---- in a run -----------------------------------------------------------------------------------------------------------


def plan(federation: Federation, rounds: int, **options: Any) -> RunPlan:
    private = central(clip=0.5, noise=2.0, seeded=True, **options)
    return make_plan(federation, fedavg(SOLVER), rounds, privacy=private, secure=secagg())


def test_a_run_stops_before_it_spends_more_than_its_budget(federation: Federation) -> None:
    two = after(2, central(1.0, 2.0))
    result, running = execute_plan(plan(federation, 9, budget=two * 1.001), SerialExecutor(torch.device("cpu")))
    assert running.done == 2
    assert running.ledger is not None
    assert running.ledger.epsilon() == pytest.approx(two)
    assert [r for r, _ in result.record.curve("epsilon", split="privacy")] == [1, 2]
    assert result.final["accuracy"] >= 0


def test_a_budget_that_the_first_round_would_break_is_refused(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"first round alone would spend ε = .* privacy.budget is 0.1"):
        FederatedRun(plan(federation, 9, budget=0.1), SerialExecutor(torch.device("cpu")), None, SilentProgress())


def test_what_was_spent_survives_a_restart(federation: Federation, tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, _ = execute_plan(plan(federation, 3), SerialExecutor(torch.device("cpu")), folder=tmp_path / "whole")
    execute_plan(plan(federation, 2), SerialExecutor(torch.device("cpu")), folder=tmp_path / "cut")
    rest, running = execute_plan(
        plan(federation, 3), SerialExecutor(torch.device("cpu")), folder=tmp_path / "cut", resume=True
    )
    assert serialize(rest.state) == serialize(whole.state)
    assert running.ledger is not None
    assert running.ledger.epsilon() == pytest.approx(after(3, central(1.0, 2.0)))


def test_a_client_gives_out_nothing_that_was_not_clipped(federation: Federation) -> None:
    running = FederatedRun(plan(federation, 1), SerialExecutor(torch.device("cpu")), None, SilentProgress())
    for address, payload in (
        ("fedavg.train", None),
        ("private.clipped", ClipRequest("fedavg.train", None)),
        ("evaluate.report_metrics", None),
    ):
        reply = next(running.host.replies(iter([Request(1, federation.clients[0], 0, address, payload)])))
        assert "only inside" in str(reply.error)


def test_a_server_cannot_leave_the_clipping_out_of_a_secure_sum(federation: Federation) -> None:
    running = FederatedRun(plan(federation, 1), SerialExecutor(torch.device("cpu")), None, SilentProgress())
    round_ = running.plan.algorithm.round(running.state, _round(federation))
    with pytest.raises(Exception, match=r"fedavg.train is given out only inside private"):
        running._play(round_)


def _round(federation: Federation) -> Any:
    from motet.core.program import Round

    return Round(0, 1, tuple(federation.clients), federation.seed, federation.server_context(0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "central", "noise": 1.0}, "option 'clip' is missing"),
        ({"type": "central", "clip": 1.0, "noise": 0.0}, "privacy.noise is 0.0"),
        ({"type": "local", "clip": -1.0, "noise": 1.0}, "privacy.clip is -1.0"),
        ({"type": "central", "clip": 1.0, "noise": 1.0, "delta": 2}, "privacy.delta is 2"),
        ({"type": "centrall", "clip": 1.0, "noise": 1.0}, "Did you mean 'central'"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_privacy(RunConfig.from_settings("r", {"privacy": given}), fedavg())


def test_the_sampler_decides_what_is_counted(federation: Federation) -> None:
    choice = CohortConfig(3, "seeded")
    running = FederatedRun(
        make_plan(federation, fedavg(SOLVER), 1, cohort=choice, privacy=central(1.0, 2.0)),
        SerialExecutor(torch.device("cpu")),
        None,
        SilentProgress(),
    )
    assert running.ledger is not None
    assert (running.ledger.secret, running.ledger.cohort, running.ledger.clients) == (True, 3, 4)
