"""Cohorts by utility and speed: Oort (Lai et al., OSDI 2021).

A client's utility is statistical, from the losses of its last training, times a penalty if it is slower than the
preferred duration T:

    Util(i) = |Bᵢ| √(1/|Bᵢ| Σ Loss(k)²) · (T / tᵢ)^(α · 1(T < tᵢ))                                      (equation 1)

Algorithm 1 of the paper, in the order of `sample_by_utility`: a part ε of the cohort is drawn from clients that have never
taken part. The others are drawn in proportion to their utility, from those that reach 95 % of the utility at the cut-off.
Utilities are clipped at their 95th percentile. √(0.1 log R / L(i)) is added for a client whose last round L(i) was long
ago. If the utility of the last W rounds is lower than that of the W rounds before, T is raised.

As in the authors' code, and not in the paper:

- Statistical utilities are scaled to 0 … 1. Else the term for the last round would depend on the scale of the loss.
- T is a percentile of the durations seen so far (30, raised by 5), and not a number of seconds.

Where we differ from both:

- The 95th percentile is rounded down to one of the utilities, and clips the utility of a round for the pacer, too. So a
  client that claims too much counts as the most useful one, and changes nothing for the others: up to one in 20 clients.
- The losses are those of the training steps (means over a batch), and not of single examples.
- New clients are drawn uniformly. The paper guesses the speed of a new client from its device model.
- A client that did not reply in time counts as explored, without utility and with the duration of the round.

Memory is 40 bytes for each client that has taken part. A round costs a few passes over these numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.core.messages import message
from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId, Program, iter_programs
from motet.experiment.recipe.run_config import OortConfig
from motet.learning.context import Context
from motet.learning.jobs import FitResult
from motet.transport.client_runtime import ContextFactory
from motet.transport.mailbox import Observation
from motet.transport.requests import Request

MIN_EXPLORATION, EXPLORATION_DECAY = 0.2, 0.98
CLIP, CUTOFF, PACE_STEP = 0.95, 0.95, 0.05
CLIENT, UTILITY, DURATION, LAST_ROUND, PICKS = range(5)  # rows of `OortState.explored`


@message
@dataclass(frozen=True, eq=False)
class OortState:
    """The statistics of clients that the server has after some rounds.

    `explored` has a column for each client that has taken part, in the order of the client list. `achieved` is the total
    utility of each of the last rounds. `pace` is the percentile that gives T, between 0 and 1.
    """

    explored: np.ndarray
    achieved: tuple[float, ...]
    pace: float

    @staticmethod
    def initial(config: OortConfig) -> OortState:
        return OortState(np.zeros((5, 0)), (), config.pace)


class UtilityRecorder:
    """Computes the utility of each training where it runs, from its losses. Only the utility leaves the client."""

    def __init__(self, algorithm: Program) -> None:
        self.programs = {program.name for program in iter_programs(algorithm)}  # an evaluation may train too
        self.squares: dict[tuple[ClientId, int], list[np.ndarray]] = {}  # by client and round, until `take`
        self.sizes: dict[ClientId, int] = {}

    def observe(self, make_context: ContextFactory) -> ContextFactory:
        """Return a function that makes the same contexts, whose trainings are recorded."""

        def make_observed_context(client: ClientId, round: int, address: str, *functions: Any) -> Any:
            context = make_context(client, round, address, *functions)
            return context.observe_fits(self.record) if self._trains(address) else context

        return make_observed_context

    def record(self, context: Context, result: FitResult) -> None:
        losses = np.asarray(result.losses.detach().float().cpu(), np.float64)
        self.squares.setdefault((context.client, context.round), []).append(losses**2)
        self.sizes[context.client] = context.size

    def take(self, request: Request) -> float | None:
        """Return the utility of the trainings for a request, and forget them; None if there were none."""
        squares = self.squares.pop((request.client, request.round), None) if self._trains(request.address) else None
        return statistical_utility(np.concatenate(squares), self.sizes[request.client]) if squares else None

    def _trains(self, address: str) -> bool:
        return address.partition(".")[0] in self.programs


def statistical_utility(squared_losses: np.ndarray, examples: int) -> float:
    """|B| √(mean of the squared losses), the first factor of equation 1."""
    return examples * float(np.sqrt(squared_losses.mean())) if len(squared_losses) else 0.0


def score_clients(explored: np.ndarray, pace: float, penalty: float, round: int) -> np.ndarray:
    """Return the utilities by which explored clients are chosen in a round, which counts from 1 (lines 9 to 12)."""
    utility, duration = explored[UTILITY], explored[DURATION]
    low, high = utility.min(), _clip_level(utility)
    scores: np.ndarray = (np.minimum(utility, high) - low) / ((high - low) or 1.0)
    scores += np.sqrt(0.1 * np.log(round) / explored[LAST_ROUND])
    preferred = np.quantile(duration, min(1.0, pace))
    speed = np.divide(preferred, duration, out=np.ones_like(duration), where=duration > preferred)
    scores *= speed**penalty
    return scores


def _clip_level(utility: np.ndarray) -> float:
    """Return the utility to which larger ones are clipped. It is a quantile, so a few false reports have no effect on it."""
    return float(np.quantile(utility, CLIP, method="lower"))


def sample_by_utility(
    config: OortConfig,
    state: OortState,
    clients: ClientList,
    size: int,
    round: int,
    seed: Seed,
    busy: Collection[ClientId] = (),
) -> tuple[ClientId, ...]:
    """Sample the cohort of a round, which counts from 0. Busy clients are left out."""
    rng = seed.derive("cohort", round).numpy()
    busy_numbers = np.array(sorted(clients.index(client) for client in busy), np.int64)
    positions, is_known = _find(state.explored[CLIENT], busy_numbers)
    is_idle = np.ones(state.explored.shape[1], bool)
    is_idle[positions[is_known]] = False
    is_fresh = is_idle & (state.explored[PICKS] < (config.max_picks or np.inf))
    idle = int(is_idle.sum())
    exploration = max(MIN_EXPLORATION, config.exploration * EXPLORATION_DECAY**round)
    unknown = len(clients) - len(is_idle) - int((~is_known).sum())
    new = min(size - min(int(size * (1 - exploration)), idle), unknown)
    exploited = min(size - new, idle)  # more than planned if there are too few new clients
    chosen = _draw_new(rng, len(clients), state.explored[CLIENT], busy_numbers, new)
    if exploited:
        explored = np.compress(is_fresh if is_fresh.sum() >= exploited else is_idle, state.explored, axis=1)
        scores = score_clients(explored, state.pace, config.penalty, round + 1)
        picks = explored[CLIENT, _draw_by_score(rng, scores, exploited)]
        chosen = np.concatenate([chosen, picks.astype(np.int64)])
    return tuple(clients[int(number)] for number in np.sort(chosen))


def _draw_by_score(rng: np.random.Generator, scores: np.ndarray, count: int) -> np.ndarray:
    """Draw in proportion to the scores, from those that reach 95 % of the `count`-th highest (lines 13 to 15)."""
    cutoff = CUTOFF * np.partition(scores, len(scores) - count)[len(scores) - count]
    pool = np.flatnonzero(scores >= cutoff)
    weights = np.maximum(scores[pool], 1e-12)  # a client without any utility can still fill a cohort
    # The smallest of exponential times with these rates are a weighted sample without replacement.
    times = rng.exponential(size=len(pool)) / weights
    return pool[np.argpartition(times, count - 1)[:count]]


def _draw_new(rng: np.random.Generator, total: int, explored: np.ndarray, busy: np.ndarray, count: int) -> np.ndarray:
    """Draw clients that are neither explored nor busy. While they are many, the cost hardly depends on `total`."""
    if 2 * (len(explored) + len(busy) + count) > total:
        is_new = np.ones(total, bool)
        is_new[explored.astype(np.int64)] = is_new[busy] = False
        return rng.choice(np.flatnonzero(is_new), count, replace=False)
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        draws = rng.integers(total, size=2 * count)
        draws = draws[~_find(explored, draws)[1] & ~_find(busy, draws)[1]]
        chosen |= dict.fromkeys(draws.tolist())
    return np.array(list(chosen)[:count], np.int64)


def _find(ordered: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where numbers are, or would be inserted, in an ordered array, and whether it contains them."""
    positions = np.searchsorted(ordered, numbers)
    is_there = np.zeros(len(numbers), bool)
    inside = positions < len(ordered)
    is_there[inside] = ordered[positions[inside]] == numbers[inside]
    return positions, is_there


def learn_from_round(
    config: OortConfig, state: OortState, clients: ClientList, round: int, observations: Mapping[ClientId, Observation]
) -> OortState:
    """Return the state after a round, which counts from 1: new columns, and the pacer (lines 6 to 8)."""
    columns = sorted((clients.index(client), *seen) for client, seen in observations.items())
    new = np.zeros((5, len(columns)))
    new[: DURATION + 1] = np.array(columns, np.float64).reshape(-1, 3).T
    new[LAST_ROUND] = round
    positions, is_known = _find(state.explored[CLIENT], new[CLIENT])
    new[PICKS, is_known] = state.explored[PICKS, positions[is_known]]
    new[PICKS] += 1
    explored = np.insert(state.explored, positions[~is_known], new[:, ~is_known], axis=1)
    explored[:, np.searchsorted(explored[CLIENT], new[CLIENT])] = new
    achieved_now = np.minimum(new[UTILITY], _clip_level(explored[UTILITY])).sum() if columns else 0.0
    achieved = (*state.achieved, float(achieved_now))[-2 * config.window :]
    is_due = len(achieved) == 2 * config.window and round % config.window == 0
    is_falling = is_due and sum(achieved[: config.window]) > sum(achieved[config.window :])
    return replace(state, explored=explored, achieved=achieved, pace=min(1.0, state.pace + PACE_STEP * is_falling))
