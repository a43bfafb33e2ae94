"""Membership inference: how well can an attacker with the model tell training texts from others?

Each text has a score, higher if it was more likely used for training. Half of the texts calibrate the threshold, the others
measure the attack. As many training texts as others take part, as if a coin had decided for each text. Correct guesses
above the threshold, or below it, prove a lower bound of ε (`epsilon_bounds`). ε here protects a whole client, and a
single text is at most that, so the bound holds for the ε that Motet reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from motet.privacy.epsilon_bounds import coin_epsilon_bound

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MembershipResult:
    """The quality of an attack on texts that did not calibrate it, and the ε that it proves with 95 % confidence."""

    members: int
    non_members: int
    auc: float
    true_positive_rate: float
    false_positive_rate: float
    epsilon_bound: float


def infer_membership(
    member_scores: np.ndarray, other_scores: np.ndarray, delta: float, rng: np.random.Generator
) -> MembershipResult:
    """Attack with a threshold that is calibrated on one half of the texts, and measured on the other."""
    calibration, test = [], []
    count = min(len(member_scores), len(other_scores))
    for scores in (member_scores, other_scores):
        shuffled = scores[rng.permutation(len(scores))[:count]]
        calibration.append(shuffled[: count // 2])
        test.append(shuffled[count // 2 :])
    threshold = calibrate_threshold(calibration[0], calibration[1])
    hits, false_alarms = (int((scores > threshold).sum()) for scores in test)
    return MembershipResult(
        members=len(test[0]),
        non_members=len(test[1]),
        auc=area_under_curve(test[0], test[1]),
        true_positive_rate=hits / max(1, len(test[0])),
        false_positive_rate=false_alarms / max(1, len(test[1])),
        epsilon_bound=lower_epsilon_bound(hits, len(test[0]), false_alarms, len(test[1]), delta),
    )


def calibrate_threshold(member_scores: np.ndarray, other_scores: np.ndarray) -> float:
    """Return the threshold with the most certain guesses on these texts, among 100 quantiles of all scores."""
    candidates = np.quantile(np.concatenate([member_scores, other_scores]), np.linspace(0.005, 0.995, 100))

    def certainty(threshold: float) -> float:
        """Return the share of correct guesses above or below the threshold, less two standard errors."""
        above = np.array([(member_scores > threshold).sum(), (other_scores > threshold).sum()])
        below = np.array([(other_scores <= threshold).sum(), (member_scores <= threshold).sum()])
        return max(_cautious_rate(int(right), int(wrong)) for right, wrong in (above, below))

    return float(max(candidates, key=certainty))


def _cautious_rate(right: int, wrong: int) -> float:
    guesses = max(1, right + wrong)
    rate = right / guesses
    return rate - 2 * math.sqrt(rate * (1 - rate) / guesses + 1 / guesses**2)


def lower_epsilon_bound(hits: int, members: int, false_alarms: int, others: int, delta: float) -> float:
    """Return an ε that the mechanism exceeds with 95 % confidence, from the counts of one attack."""
    coins, error = members + others, (1 - CONFIDENCE) / 2  # two bounds share the probability of an error
    misses, rejections = members - hits, others - false_alarms
    return max(
        coin_epsilon_bound(coins, hits + false_alarms, hits, delta, error),
        coin_epsilon_bound(coins, misses + rejections, rejections, delta, error),
    )


def area_under_curve(member_scores: np.ndarray, other_scores: np.ndarray) -> float:
    """Return the probability that a random member has a higher score than a random other text; ties count half."""
    ordered = np.sort(other_scores)
    below = np.searchsorted(ordered, member_scores, "left")
    not_above = np.searchsorted(ordered, member_scores, "right")
    return float((below + not_above).mean() / 2 / len(other_scores))
