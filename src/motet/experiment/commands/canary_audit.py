"""Canaries: clients with known updates, which show how much the noise of a run hides.

The mechanism of a run (clip, codecs, masks, noise, cohorts) is repeated with updates that are easy to find again: each
client has a direction of its own. A coin decides whether it sends its direction or not. Whoever sees the result guesses
the coins, from how far the result lies in each direction. If only sums are seen, no client is easier to recognize.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.round_engine import RoundEngine
from motet.learning.executors.serial_executor import SerialExecutor
from motet.privacy.dp_sum import PrivateSum
from motet.privacy.epsilon_bounds import coin_epsilon_bound, gaussian_epsilon
from motet.transport.client_state import ClientStates

NUMBERS = 4096  # of an update; noise and clip do not depend on it
MAX_CANARIES = 512  # in one repetition, so that their directions are orthogonal
GUESSED_SHARES = (1.0, 0.5, 0.25, 0.1)  # of the coins: an attacker guesses only those that it is sure of
ERROR = 0.05


@dataclass(frozen=True)
class CanaryResult:
    """How well the coins of canaries were guessed, and the ε that this proves with 95 % confidence.

    `gaussian_epsilon` is the ε of normal noise that separates the canaries as far as these are. It is an estimate.
    """

    canaries: int
    repetitions: int
    accuracy: float  # of guesses of all coins
    epsilon_bound: float
    gaussian_epsilon: float


@dataclass(frozen=True, eq=False)
class CanaryAlgorithm(Algorithm):
    """Each client sends its own vector, in every round. The state is the sum of all means."""

    vectors: Mapping[ClientId, torch.Tensor]
    name: str = "canary"

    def init(self, start: InitialModels) -> Params:
        return Params.from_tensors({"canary": torch.zeros(NUMBERS)})

    def round(self, state: Params, rnd: Round) -> Script[Params]:
        mean = yield from total(self.send, to_all(rnd.cohort, state))
        return state + mean.value

    @work(reveals="sum")
    def send(self, ctx: Any, state: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        yield from ()
        return Weighted(Params(state.layout, self.vectors.get(ctx.client, torch.zeros(NUMBERS))), 1.0), None

    def view(self, state: Params, client: ClientId) -> Params:
        return state

    def assemble(self, ctx: Any, params: Params, client_state: None) -> Params:
        return params


def audit_canaries(plan: RunPlan, federation: Federation, count: int) -> CanaryResult:
    """Repeat the mechanism of a run until `count` coins are guessed, and return what the guesses prove."""
    privacy = plan.components.privacy
    if privacy is None:
        raise ValueError("a run without noise has no mechanism to audit")
    in_run = min(len(federation.clients), MAX_CANARIES)
    repetitions = math.ceil(count / in_run)
    rng = np.random.default_rng(secrets.randbits(64))
    coins, scores = [], []
    for _ in range(repetitions):
        sides = rng.integers(0, 2, in_run).astype(bool)
        coins.append(sides)
        scores.append(_score_canaries(plan, federation, privacy, sides))
    return judge_guesses(np.concatenate(coins), np.concatenate(scores), privacy.delta, repetitions)


def judge_guesses(coins: np.ndarray, scores: np.ndarray, delta: float, repetitions: int = 1) -> CanaryResult:
    """Guess heads for scores above the middle of both sides. Guess also only the coins that are farthest from it."""
    upper = scores >= np.median(scores)
    middle = (scores[upper].mean() + scores[~upper].mean()) / 2
    is_correct = (scores > middle) == coins
    order, bounds = np.argsort(-np.abs(scores - middle)), []
    for share in GUESSED_SHARES:
        guessed = order[: int(share * len(coins))]
        correct = int(is_correct[guessed].sum())
        bounds.append(coin_epsilon_bound(len(coins), len(guessed), correct, delta, ERROR / len(GUESSED_SHARES)))
    heads, tails = scores[coins], scores[~coins]
    spread = math.sqrt((heads.var(ddof=1) + tails.var(ddof=1)) / 2)
    return CanaryResult(
        canaries=len(coins),
        repetitions=repetitions,
        accuracy=float(is_correct.mean()),
        epsilon_bound=max(bounds),
        gaussian_epsilon=gaussian_epsilon(float(heads.mean() - tails.mean()) / spread, delta),
    )


def _score_canaries(plan: RunPlan, federation: Federation, privacy: PrivateSum, sides: np.ndarray) -> np.ndarray:
    """Run the mechanism once, with new cohorts, noise and directions. Return each canary's score."""
    seed = Seed(secrets.randbits(63))
    noise = torch.randn(NUMBERS, len(sides), generator=seed.torch(), dtype=torch.float64)
    directions = torch.linalg.qr(noise).Q.T.float()
    is_replaced = _compares_replaced_updates(plan, privacy)
    tails = -1.0 if is_replaced else 0.0
    vectors = {
        federation.clients[index]: directions[index] * privacy.clip * (1.0 if side else tails)
        for index, side in enumerate(sides)
    }
    components = replace(
        plan.components,
        algorithm=CanaryAlgorithm(vectors),
        privacy=replace(privacy, seeded=False, noise_key=os.urandom(32)),
    )
    trial = replace(plan, components=components, federation=replace(federation, seed=seed), attack=None, network=None)
    engine = RoundEngine(trial, SerialExecutor(torch.device("cpu")), ClientStates())
    while not engine.is_finished:
        engine.run_round()
    scores: np.ndarray = (directions @ engine.progress.state.flat).numpy()
    return scores


def _compares_replaced_updates(plan: RunPlan, privacy: PrivateSum) -> bool:
    """Return True if ε is about another update of a client, not about a client that is left out (see `accountant`)."""
    samples = plan.cohort.sampler == "seeded" and plan.cohort_size < len(plan.federation.clients)
    return privacy.trust_model == "local" or (privacy.trust_model == "central" and samples)
