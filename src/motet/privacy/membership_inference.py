"""Membership inference: how well can somebody with the model tell training texts from others?

Each text has a score, higher if it was more likely used for training. Half of the texts calibrate the threshold, the others
measure the attack. Under (ε, δ)-differential privacy the rates of every such attack obey

    true positives ≤ e^ε · false positives + δ,   and the same with both swapped for their complements

so confidence bounds of the rates give a lower bound of ε (Jagielski et al. 2020; Nasr et al. 2021). ε here protects a whole
client, and a single text is at most that, so the bound holds for the ε that Motet reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
    for scores in (member_scores, other_scores):
        shuffled = scores[rng.permutation(len(scores))]
        calibration.append(shuffled[: len(scores) // 2])
        test.append(shuffled[len(scores) // 2 :])
    threshold = calibrate_threshold(calibration[0], calibration[1], delta)
    hits, false_alarms = (int((scores > threshold).sum()) for scores in test)
    return MembershipResult(
        members=len(test[0]),
        non_members=len(test[1]),
        auc=area_under_curve(test[0], test[1]),
        true_positive_rate=hits / max(1, len(test[0])),
        false_positive_rate=false_alarms / max(1, len(test[1])),
        epsilon_bound=lower_epsilon_bound(hits, len(test[0]), false_alarms, len(test[1]), delta),
    )


def calibrate_threshold(member_scores: np.ndarray, other_scores: np.ndarray, delta: float) -> float:
    """Return the threshold that proves the largest ε on these texts, among 100 quantiles of all scores."""
    candidates = np.quantile(np.concatenate([member_scores, other_scores]), np.linspace(0.005, 0.995, 100))

    def proves(threshold: float) -> tuple[float, float]:
        hits, false_alarms = int((member_scores > threshold).sum()), int((other_scores > threshold).sum())
        bound = lower_epsilon_bound(hits, len(member_scores), false_alarms, len(other_scores), delta)
        return bound, hits / len(member_scores) - false_alarms / len(other_scores)

    return float(max(candidates, key=proves))


def lower_epsilon_bound(hits: int, members: int, false_alarms: int, others: int, delta: float) -> float:
    """Return an ε that the mechanism exceeds with 95 % confidence, from the counts of one attack."""
    positive = _log_ratio(_lower_rate(hits, members) - delta, _upper_rate(false_alarms, others))
    negative = _log_ratio(_lower_rate(others - false_alarms, others) - delta, _upper_rate(members - hits, members))
    return max(0.0, positive, negative)


def area_under_curve(member_scores: np.ndarray, other_scores: np.ndarray) -> float:
    """Return the probability that a random member has a higher score than a random other text; ties count half."""
    ordered = np.sort(other_scores)
    below = np.searchsorted(ordered, member_scores, "left")
    not_above = np.searchsorted(ordered, member_scores, "right")
    return float((below + not_above).mean() / 2 / len(other_scores))


def _lower_rate(count: int, total: int) -> float:
    """Return the lower end of a Clopper-Pearson interval. Two rates share the probability of an error."""
    from scipy.stats import beta

    return float(beta.ppf((1 - CONFIDENCE) / 2, count, total - count + 1)) if count else 0.0


def _upper_rate(count: int, total: int) -> float:
    from scipy.stats import beta

    return float(beta.ppf(1 - (1 - CONFIDENCE) / 2, count + 1, total - count)) if count < total else 1.0


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > 0 and denominator > 0 else 0.0
