"""Distributed noise: no client adds all of it, no server can leave it out, and every sum that opens has enough."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from scipy.special import ive
from tests.runs import make_plan
from tests.sums import TOLERANT, LossyTransport, VectorProgram, make_runtime, run_sum

from motet.algorithms import fedavg
from motet.codecs.skellam import MAX_RESOLUTION, MIN_RESOLUTION, TAIL_EXPONENT, SkellamNoise
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import rewrite_sums
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
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.prime_field import FIELD
from motet.secure.protocol import SecureSum
from motet.transport.mailbox import Mailbox

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
PROTOCOLS = {  # three of five clients must finish
    "secagg": secagg(threshold=0.5),
    "secagg_plus": secagg_plus(dropouts=0.4),
    "light_secagg": light_secagg(colluders=0.4, threshold=0.6),
}
with_every_protocol = pytest.mark.parametrize("name", PROTOCOLS)


def noisy_mean(
    vectors: dict[str, Weighted], mechanism: Any, secure: SecureSum, lost: frozenset[str] = frozenset()
) -> Weighted:
    """Return the mean that the server reads. The uploads of some clients are lost."""
    secure, program = secure.with_privacy(mechanism.secure_sum_noise), VectorProgram(vectors)
    transport = LossyTransport(
        make_runtime([program, mechanism, secure]), is_lost=lambda client, stage: stage == "upload" and client in lost
    )
    script = rewrite_sums(mechanism.make_summation(Seed(3), lambda clients, key: None), program.round())
    return run_sum(rewrite_sums(secure, script), Mailbox(transport, TOLERANT))


def make_zeros(clients: int, size: int) -> dict[str, Weighted]:
    return {f"c{k}": Weighted(Params.from_tensors({"x": torch.zeros(size)}), 1.0 + k) for k in range(clients)}


def make_rng() -> np.random.Generator:
    return np.random.default_rng(0)


# ---- Size of the noise ----------------------------------------------------------------------------------------------


@with_every_protocol
@pytest.mark.parametrize("lost_count", [0, 1, 2])
def test_the_smallest_sum_has_the_full_noise_and_more_clients_add_more(name: str, lost_count: int) -> None:
    size, clip, noise, survivors = 60_000, 0.2, 1.5, 5 - lost_count
    lost = frozenset(f"c{k}" for k in range(lost_count))
    mean = noisy_mean(make_zeros(5, size), distributed(clip, noise), PROTOCOLS[name], lost)
    total = mean.value.flat.double() * survivors
    variance = (noise * clip) ** 2 * survivors / 3
    assert mean.weight == survivors
    assert float(total.var()) == pytest.approx(variance, rel=6 * math.sqrt(2 / size))
    assert abs(float(total.mean())) < 6 * math.sqrt(variance / size)


@with_every_protocol
def test_the_noisy_mean_is_unbiased(name: str) -> None:
    size, value = 40_000, 0.001
    vectors = {f"c{k}": Weighted(Params.from_tensors({"x": torch.full((size,), value)}), 900.0) for k in range(5)}
    mean = noisy_mean(vectors, distributed(1.0, 1e-3), PROTOCOLS[name])
    assert float(mean.value.flat.double().mean()) == pytest.approx(value, abs=6e-3 / 5 / math.sqrt(size))


def test_honest_clients_make_up_for_the_noise_of_colluders() -> None:
    noise = SkellamNoise(1.0, 2.0, colluders=0.2)
    assert noise.honest_survivors(10, 7) == 5
    assert SkellamNoise(1.0, 2.0).honest_survivors(10, 7) == 7
    words = noise.encode(torch.zeros(100_000), 10, 7, 2**32, make_rng()).view(np.int32).astype(float)
    assert words.var() == pytest.approx((2.0 * noise.resolution(10, 7, 2**32)) ** 2 / 5, rel=0.03)
    with pytest.raises(ConfigError, match="so that no noise counts"):
        SkellamNoise(1.0, 2.0, colluders=0.7).honest_survivors(10, 7)


def test_noise_is_new_every_time_unless_it_is_seeded() -> None:
    def draw(**options: Any) -> torch.Tensor:
        return noisy_mean(make_zeros(5, 9), distributed(1.0, 1.0, **options), PROTOCOLS["secagg"]).value.flat

    assert not torch.equal(draw(), draw())
    assert torch.equal(draw(seeded=True), draw(seeded=True))


def test_two_clients_with_the_same_reply_add_different_noise() -> None:
    first, second = (SkellamNoise(1.0, 1.0).encode(torch.zeros(50), 5, 3, 2**32, make_rng()) for _ in range(2))
    assert (first != second).mean() > 0.9


# ---- What the privacy guarantee rests on ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 300_000])
@pytest.mark.parametrize("norm", [0.0, 0.5, 1.0, 100.0])
def test_a_rounded_reply_is_never_longer_than_the_clip(size: int, norm: float) -> None:
    noise, resolution = SkellamNoise(1.0, 1.0), MIN_RESOLUTION
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(1))
    numbers *= norm / numbers.norm()
    integers = noise._round(numbers, resolution, make_rng()).astype(float)
    assert integers @ integers <= resolution**2
    assert math.sqrt(integers @ integers) >= 0.95 * min(norm, 1.0) * resolution  # and not much shorter than needed


def test_rounding_is_repeated_if_it_makes_a_reply_too_long() -> None:
    class UnluckyGenerator:
        """Rounds everything up in the first attempt."""

        def __init__(self) -> None:
            self.rng, self.calls = make_rng(), 0

        def random(self, size: int, dtype: Any) -> np.ndarray:
            self.calls += 1
            return np.full(size, 0.999999, dtype) if self.calls == 1 else self.rng.random(size, dtype)

    rng = UnluckyGenerator()
    numbers = torch.full((60_000,), 1.0)
    integers = SkellamNoise(1.0, 1.0)._round(numbers, MIN_RESOLUTION, rng).astype(float)  # type: ignore[arg-type]
    assert rng.calls == 2
    assert integers @ integers <= MIN_RESOLUTION**2


def test_a_resolution_that_is_too_coarse_is_rejected() -> None:
    with pytest.raises(ConfigError, match="less than half of the norm"):
        SkellamNoise(1.0, 1.0)._round(torch.zeros(1000), 16, make_rng())


def test_numbers_that_are_not_finite_are_rejected() -> None:
    with pytest.raises(RunError, match="not finite"):
        SkellamNoise(1.0, 1.0).encode(torch.tensor([float("nan")]), 5, 3, 2**32, make_rng())


@pytest.mark.parametrize("modulus", [2**32, FIELD.prime])
@pytest.mark.parametrize("noise", [1e-6, 0.5, 30.0])
@pytest.mark.parametrize("clients", [3, 100, 5000])
def test_the_largest_sum_with_its_noise_does_not_wrap(clients: int, noise: float, modulus: int) -> None:
    min_survivors = clients // 2 + 1
    resolution = SkellamNoise(1.0, noise).resolution(clients, min_survivors, modulus)
    assert MIN_RESOLUTION <= resolution <= MAX_RESOLUTION
    variance = (noise * resolution) ** 2 * clients / min_survivors
    left_for_noise = modulus // 2 - clients * resolution
    chernoff_exponent = (
        variance - math.hypot(variance, left_for_noise) + left_for_noise * math.asinh(left_for_noise / variance)
    )
    assert chernoff_exponent >= 0.99 * TAIL_EXPONENT


def test_a_cohort_too_large_for_its_words_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"use a smaller cohort\.size"):
        SkellamNoise(1.0, 1.0).resolution(2**20, 2**19 + 1, FIELD.prime)


@pytest.mark.parametrize(("variance", "distance"), [(4.0, 1), (50.0, 3), (400.0, 20), (1e4, 64)])
@pytest.mark.parametrize("order", [2, 3, 8, 24])
def test_the_published_bound_is_above_the_exact_divergence(variance: float, distance: int, order: int) -> None:
    """Also at scales so small that the discreteness of the noise matters."""
    bound = distance**2 * (order / (2 * variance) + (2 * order + 5) / (4 * variance**2))
    assert exact_divergence(variance, distance, order) <= bound


def test_the_bound_that_is_used_is_tight() -> None:
    exact = exact_divergence(MIN_RESOLUTION**2, MIN_RESOLUTION, 4)
    assert exact <= skellam_divergence(1.0, 1)(4) <= 1.001 * exact


def exact_divergence(variance: float, distance: int, order: int) -> float:
    """Return the Rényi divergence of Skellam noise and its shift; k has the probability e^−μ·I_k(μ)."""
    reach = int(14 * math.sqrt(variance) * math.sqrt(order)) + 60 + distance * order
    support = np.arange(-reach, reach + 1)
    with np.errstate(divide="ignore"):
        first = np.log(ive(np.abs(support), variance))
        second = np.log(ive(np.abs(support - distance), variance))
    finite = np.isfinite(first) & np.isfinite(second)
    return float(np.logaddexp.reduce(order * first[finite] - (order - 1) * second[finite])) / (order - 1)


# ---- Accounting -----------------------------------------------------------------------------------------------------


def epsilon_after(
    rounds: int, mechanism: Any, cohort_size: int = 10, client_count: int = 10, has_secret_cohorts: bool = False
) -> float:
    accountant = PrivacyAccountant(mechanism, client_count, cohort_size, has_secret_cohorts)
    for _ in range(rounds):
        accountant.record_sum([f"c{k}" for k in range(cohort_size)])
    return accountant.epsilon()


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 5), (8.0, 100)])
def test_epsilon_is_slightly_above_that_of_central_noise(noise: float, rounds: int) -> None:
    exact = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(rounds), 1e-5)
    epsilon, central_epsilon = (epsilon_after(rounds, make(1.0, noise)) for make in (distributed, central))
    assert exact < epsilon
    assert central_epsilon < epsilon <= 1.01 * central_epsilon


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_delta() -> None:
    by_rounds = [epsilon_after(rounds, distributed(1.0, 2.0)) for rounds in (1, 2, 20)]
    by_noise = [epsilon_after(5, distributed(1.0, noise)) for noise in (4.0, 2.0, 0.1)]
    by_delta = [epsilon_after(5, distributed(1.0, 2.0, delta=delta)) for delta in (1e-4, 1e-8)]
    for epsilons in (by_rounds, by_noise, by_delta):
        assert epsilons == sorted(set(epsilons))
    assert epsilon_after(1, distributed(1.0, 1e-9)) > 1e9  # almost no noise, and no overflow


def test_a_cohort_is_not_secret_from_the_server_that_samples_it() -> None:
    def epsilon(mechanism: Any, has_secret_cohorts: bool) -> float:
        return epsilon_after(50, mechanism, 10, 1000, has_secret_cohorts)

    mechanism = distributed(1.0, 4.0)
    assert epsilon(mechanism, True) == epsilon(mechanism, False)
    assert epsilon(central(1.0, 4.0), True) < epsilon(mechanism, True)


# ---- In a run -------------------------------------------------------------------------------------------------------


def make_noisy_plan(federation: Federation, rounds: int, **options: Any) -> RunPlan:
    mechanism = distributed(clip=0.5, noise=2.0, seeded=True, **options)
    return make_plan(federation, fedavg(SOLVER), rounds, privacy=mechanism, secure=secagg())


def make_running(plan: RunPlan) -> FederatedRun:
    return FederatedRun(plan, SerialExecutor(torch.device("cpu")))


def test_a_run_records_epsilon_and_stops_before_it_exceeds_its_budget(federation: Federation) -> None:
    two_rounds = epsilon_after(2, distributed(1.0, 2.0))
    plan = make_noisy_plan(federation, 9, budget=two_rounds * 1.001)
    result = execute_plan(plan, SerialExecutor(torch.device("cpu")))
    assert result.rounds == 2
    assert [value for _, value in result.metrics.curve("epsilon", split="privacy")][-1] == pytest.approx(two_rounds)


def test_scores_have_no_noise(federation: Federation) -> None:
    noisy = make_running(make_noisy_plan(federation, 1))
    plain = make_running(make_plan(federation, fedavg(SOLVER), 1, secure=secagg()))
    noisy_mean, plain_mean = (run.evaluator.evaluate_clients().mean for run in (noisy, plain))
    assert noisy_mean == pytest.approx(plain_mean, abs=1e-6)


OPTIONS = {"type": "distributed", "clip": 1.0, "noise": 1.0}


def test_distributed_noise_without_a_secure_sum_is_rejected(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"secure.type is none; set secure.type=secagg"):
        build_privacy(RunConfig.from_settings("r", {"privacy": OPTIONS}), fedavg())
    with pytest.raises(ConfigError, match=r"there is none; set secure.type=secagg"):
        make_plan(federation, fedavg(SOLVER), 1, privacy=distributed(1.0, 1.0))


@pytest.mark.parametrize("protocol", [name for name in SECURE if name != "none"])
def test_distributed_noise_works_with_every_secure_sum(protocol: str, federation: Federation) -> None:
    config = RunConfig.from_settings("r", {"privacy": OPTIONS, "secure": protocol})
    mechanism, secure = build_privacy(config, fedavg()), build_secure(config, fedavg(), build_channel(config))
    plan = make_plan(federation, fedavg(SOLVER), 1, privacy=mechanism, secure=secure)
    assert plan.components.secure is not None
    assert plan.components.secure.encoding.noise == {"private.clipped": SkellamNoise(1.0, 1.0)}


def test_too_many_colluders_are_rejected_before_a_run(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"privacy.colluders is 0.9"):
        make_plan(federation, fedavg(SOLVER), 1, privacy=distributed(1.0, 1.0, colluders=0.9), secure=secagg())
    with pytest.raises(ConfigError, match=r"privacy.colluders is 1.5"):
        distributed(1.0, 1.0, colluders=1.5)
