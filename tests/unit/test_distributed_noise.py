"""Noise that no single client adds and no server could leave out: as much as is said in every sum that can be opened."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from scipy.special import ive
from tests.runs import make_plan
from tests.sums import PATIENT, Line, Plainly, host_for

from motet.algorithms import fedavg
from motet.codecs.skellam import MAX_RESOLUTION, MIN_RESOLUTION, TAIL_EXPONENT, SkellamNoise
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import rewrite_sums, run_script
from motet.core.weighted import Weighted
from motet.experiment.build.component_builders import build_channel, build_privacy, build_secure
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.privacy import central, distributed
from motet.privacy.accountant import PrivacyAccountant
from motet.privacy.renyi import skellam_divergence
from motet.report.progress import SilentProgress
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.prime_field import FIELD
from motet.secure.protocol import SecureSum
from motet.transport.mailbox import Mailbox

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
PROTOCOLS = {
    "secagg": secagg(threshold=0.5),  # three of five
    "secagg_plus": secagg_plus(dropouts=0.4),
    "light_secagg": light_secagg(privacy=0.4, threshold=0.6),
}
every = pytest.mark.parametrize("name", PROTOCOLS)


def opened(given: dict[str, Weighted], private: Any, secure: SecureSum, lost: frozenset[str] = frozenset()) -> Weighted:
    """The mean as the server reads it, some clients having been lost when they uploaded."""
    secure, program = replace(secure, noise=private.inside), Plainly(given)
    line = Line(host_for([program, private, secure]), lost=lambda client, stage: stage == "upload" and client in lost)
    script = rewrite_sums(secure, rewrite_sums(private.sums(Seed(3), lambda members: None), program.round()))
    return run_script(script, Mailbox(line, PATIENT).ask, lambda job: None)


def zeros(clients: int, size: int) -> dict[str, Weighted]:
    return {f"c{k}": Weighted(Params.from_tensors({"x": torch.zeros(size)}), 1.0 + k) for k in range(clients)}


# ---- how much there is --------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_sum_of_those_who_must_finish_has_the_whole_noise_and_more_clients_bring_more(name: str, lost: int) -> None:
    size, clip, noise, left = 60_000, 0.2, 1.5, 5 - lost
    gone = frozenset(f"c{k}" for k in range(lost))
    found = opened(zeros(5, size), distributed(clip, noise), PROTOCOLS[name], gone)
    total = found.value.flat.double() * left
    assert found.weight == left
    expected = (noise * clip) ** 2 * left / 3
    assert float(total.var()) == pytest.approx(expected, rel=6 * math.sqrt(2 / size))
    assert abs(float(total.mean())) < 6 * math.sqrt(expected / size)


@every
def test_what_is_said_comes_through_the_noise_unbiased(name: str) -> None:
    size, value = 40_000, 0.001
    given = {f"c{k}": Weighted(Params.from_tensors({"x": torch.full((size,), value)}), 900.0) for k in range(5)}
    found = opened(given, distributed(1.0, 1e-3), PROTOCOLS[name])
    assert float(found.value.flat.double().mean()) == pytest.approx(value, abs=6e-3 / 5 / math.sqrt(size))


def test_noise_of_clients_that_may_collude_is_added_by_the_others() -> None:
    noise = SkellamNoise(1.0, 2.0, colluders=0.2)
    assert [noise.sharers(10, 7), SkellamNoise(1.0, 2.0).sharers(10, 7)] == [5, 7]
    words = noise.encode(torch.zeros(100_000), 10, 7, 2**32, np.random.default_rng(0)).view(np.int32).astype(float)
    assert words.var() == pytest.approx((2.0 * noise.grain(10, 7, 2**32)) ** 2 / 5, rel=0.03)
    with pytest.raises(ConfigError, match="none would be left whose noise counts"):
        SkellamNoise(1.0, 2.0, colluders=0.7).sharers(10, 7)


def test_noise_is_new_every_time_unless_it_is_seeded() -> None:
    first, second = (opened(zeros(5, 9), distributed(1.0, 1.0), PROTOCOLS["secagg"]).value.flat for _ in range(2))
    assert not torch.equal(first, second)
    again = [opened(zeros(5, 9), distributed(1.0, 1.0, seeded=True), PROTOCOLS["secagg"]).value.flat for _ in range(2)]
    assert torch.equal(again[0], again[1])


def test_two_clients_with_the_same_reply_add_different_noise() -> None:
    words = [SkellamNoise(1.0, 1.0).encode(torch.zeros(50), 5, 3, 2**32, np.random.default_rng(0)) for _ in range(2)]
    assert (words[0] != words[1]).mean() > 0.9


# ---- what ε rests on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 300_000])
@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 100.0])
def test_no_reply_is_longer_in_integers_than_the_clip(size: int, length: float) -> None:
    noise, grain = SkellamNoise(1.0, 1.0), MIN_RESOLUTION
    given = torch.randn(size, generator=torch.Generator().manual_seed(1))
    given *= length / given.norm()
    whole = noise._rounded(given, grain, np.random.default_rng(0)).astype(float)
    assert whole @ whole <= grain**2
    assert math.sqrt(whole @ whole) >= 0.95 * min(length, 1.0) * grain  # and hardly shorter than it must be


def test_an_unlucky_rounding_is_drawn_again() -> None:
    class Unlucky:
        """Rounds everything up at first."""

        def __init__(self) -> None:
            self.rest = np.random.default_rng(0)
            self.times = 0

        def random(self, size: int, dtype: Any) -> np.ndarray:
            self.times += 1
            return np.full(size, 0.999999, dtype) if self.times == 1 else self.rest.random(size, dtype)

    rng = Unlucky()
    given = torch.full((60_000,), 1.0)
    whole = SkellamNoise(1.0, 1.0)._rounded(given, MIN_RESOLUTION, rng).astype(float)  # type: ignore[arg-type]
    assert rng.times == 2
    assert whole @ whole <= MIN_RESOLUTION**2


def test_steps_too_coarse_for_so_many_numbers_are_refused_and_so_is_what_is_not_finite() -> None:
    noise = SkellamNoise(1.0, 1.0)
    with pytest.raises(ConfigError, match="longer by their rounding"):
        noise._rounded(torch.zeros(1000), 16, np.random.default_rng(0))
    with pytest.raises(RunError, match="not finite"):
        noise.encode(torch.tensor([float("nan")]), 5, 3, 2**32, np.random.default_rng(0))


@pytest.mark.parametrize("modulus", [2**32, FIELD.prime])
@pytest.mark.parametrize("noise", [1e-6, 0.5, 30.0])
@pytest.mark.parametrize("clients", [3, 100, 5000])
def test_the_largest_sum_and_its_noise_stay_on_their_side_of_half_the_modulus(
    clients: int, noise: float, modulus: int
) -> None:
    fewest = clients // 2 + 1
    mechanism = SkellamNoise(1.0, noise)
    grain = mechanism.grain(clients, fewest, modulus)
    assert MIN_RESOLUTION <= grain <= MAX_RESOLUTION
    variance = (noise * grain) ** 2 * clients / fewest
    tail = modulus // 2 - clients * grain  # what is left for noise
    exponent = variance - math.hypot(variance, tail) + tail * math.asinh(tail / variance)  # Chernoff's, exactly
    assert exponent >= 0.99 * TAIL_EXPONENT


def test_a_cohort_too_large_for_its_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="ask fewer clients at a time"):
        SkellamNoise(1.0, 1.0).grain(2**20, 2**19 + 1, FIELD.prime)


@pytest.mark.parametrize(("variance", "apart"), [(4.0, 1), (50.0, 3), (400.0, 20), (1e4, 64)])
def test_the_published_bound_lies_above_the_exact_divergence_of_skellam_noise(variance: float, apart: int) -> None:
    """At the scale of `skellam_divergence`, and term by term at scales so small that the discreteness matters."""
    for order in (2, 3, 8, 24):
        exact = divergence(variance, apart, order)
        bound = apart**2 * (order / (2 * variance) + (2 * order + 5) / (4 * variance**2))
        assert exact <= bound
    noise = 1.0
    exact = divergence(MIN_RESOLUTION**2, MIN_RESOLUTION, 4)
    assert exact <= skellam_divergence(noise, 1)(4) <= 1.001 * exact


def divergence(variance: float, apart: int, order: int) -> float:
    """Rényi's, of Skellam noise and the same shifted; the probability of k is e^−μ·I_k(μ)."""
    reach = int(14 * math.sqrt(variance) * math.sqrt(order)) + 60 + apart * order
    here = np.arange(-reach, reach + 1)
    with np.errstate(divide="ignore"):
        first, second = np.log(ive(np.abs(here), variance)), np.log(ive(np.abs(here - apart), variance))
    there = np.isfinite(first) & np.isfinite(second)
    return float(np.logaddexp.reduce(order * first[there] - (order - 1) * second[there])) / (order - 1)


# ---- what it costs --------------------------------------------------------------------------------------------------------


def spent(private: Any, rounds: int, cohort: int = 10, clients: int = 10, secret: bool = False) -> float:
    ledger = PrivacyAccountant(private, clients, cohort, secret)
    for _ in range(rounds):
        ledger.spend([f"c{k}" for k in range(cohort)])
    return ledger.epsilon()


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 5), (8.0, 100)])
def test_epsilon_is_a_little_above_that_of_the_same_noise_added_by_the_server(noise: float, rounds: int) -> None:
    exact = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(rounds), 1e-5)
    found = spent(distributed(1.0, noise), rounds)
    assert exact < found
    assert spent(central(1.0, noise), rounds) < found <= 1.01 * spent(central(1.0, noise), rounds)


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_delta() -> None:
    assert spent(distributed(1.0, 2.0), 1) < spent(distributed(1.0, 2.0), 2) < spent(distributed(1.0, 2.0), 20)
    assert spent(distributed(1.0, 4.0), 5) < spent(distributed(1.0, 2.0), 5) < spent(distributed(1.0, 0.1), 5)
    assert spent(distributed(1.0, 2.0, delta=1e-4), 5) < spent(distributed(1.0, 2.0, delta=1e-8), 5)
    assert spent(distributed(1.0, 1e-9), 1) > 1e9  # hardly any noise is hardly any privacy, and no number too large


def test_a_cohort_is_no_secret_from_the_server_that_draws_it() -> None:
    given = {"rounds": 50, "cohort": 10, "clients": 1000}
    private = distributed(1.0, 4.0)
    assert spent(private, secret=True, **given) == spent(private, secret=False, **given)
    assert spent(central(1.0, 4.0), secret=True, **given) < spent(
        private, secret=True, **given
    )  # whom the model alone reaches


# ---- in a run -----------------------------------------------------------------------------------------------------------


def plan(federation: Federation, rounds: int, **options: Any) -> RunPlan:
    private = distributed(clip=0.5, noise=2.0, seeded=True, **options)
    return make_plan(federation, fedavg(SOLVER), rounds, privacy=private, secure=secagg())


def test_a_run_shows_epsilon_and_stops_before_it_spends_more_than_its_budget(federation: Federation) -> None:
    two = spent(distributed(1.0, 2.0), 2)
    result, running = execute_plan(plan(federation, 9, budget=two * 1.001), SerialExecutor(torch.device("cpu")))
    assert running.done == 2
    assert [value for _, value in result.record.curve("epsilon", split="privacy")][-1] == pytest.approx(two)


def test_scores_are_not_noisy(federation: Federation) -> None:
    running = FederatedRun(plan(federation, 1), SerialExecutor(torch.device("cpu")), None, SilentProgress())
    plain = FederatedRun(
        make_plan(federation, fedavg(SOLVER), 1, secure=secagg()),
        SerialExecutor(torch.device("cpu")),
        None,
        SilentProgress(),
    )
    assert running.look_at_mean("test") == pytest.approx(plain.look_at_mean("test"), abs=1e-6)


@pytest.mark.parametrize("protocol", [n for n in SECURE if n != "none"])
def test_without_a_secure_sum_it_is_refused_and_with_any_it_is_not(protocol: str, federation: Federation) -> None:
    said = {"type": "distributed", "clip": 1.0, "noise": 1.0}
    with pytest.raises(ConfigError, match=r"secure.type is none; set secure.type=secagg"):
        build_privacy(RunConfig.from_settings("r", {"privacy": said}), fedavg())
    with pytest.raises(ConfigError, match=r"there is none; set secure.type=secagg"):
        make_plan(federation, fedavg(SOLVER), 1, privacy=distributed(1.0, 1.0))
    config = RunConfig.from_settings("r", {"privacy": said, "secure": protocol})
    private, secure = build_privacy(config, fedavg()), build_secure(config, fedavg(), build_channel(config))
    made = make_plan(federation, fedavg(SOLVER), 1, privacy=private, secure=secure).components.secure
    assert made is not None
    assert made.noise == {"private.clipped": SkellamNoise(1.0, 1.0)}


def test_more_colluders_than_a_sum_can_bear_are_refused_before_anything_runs(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"privacy.colluders is 0.9"):
        make_plan(federation, fedavg(SOLVER), 1, privacy=distributed(1.0, 1.0, colluders=0.9), secure=secagg())
    with pytest.raises(ConfigError, match=r"privacy.colluders is 1.5"):
        distributed(1.0, 1.0, colluders=1.5)
