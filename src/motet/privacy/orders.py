"""Rényi divergences of Skellam noise, at whole orders, and what a secret cohort takes off them.

    ε(α) ≤ α·Δ₂²/2μ + ((2α − 1)·Δ₂² + 6·Δ₁) / 4μ²                                             (Agarwal et al. 2021, for whole α)

In integers Δ₁ ≤ Δ₂², so with μ = (z·grain)² and Δ₂ a multiple of the grain nothing depends on how many numbers there are. The
second term falls with the grain; it is taken at the coarsest that a sum may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from motet.codecs.skellam import COARSEST

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
Divergence = Callable[[int], float]


def skellam(noise: float, clips: float) -> Divergence:
    """Of two sums at most `clips` clips apart, under noise with a deviation of `noise` clips."""
    apart, variance = clips * COARSEST, (noise * COARSEST) ** 2

    def divergence(order: int) -> float:
        return apart**2 * (order / (2 * variance) + (2 * order + 5) / (4 * variance**2))

    return divergence


def sampled(whole: Divergence, share: float) -> Divergence:
    """If a share of all, drawn without replacement and in secret, takes part (Wang et al. 2019, theorem 9): bounds of the
    mechanism's divergences are all it needs, where the sharper form for Gaussian noise needs their exact values."""

    def divergence(order: int) -> float:
        two = whole(2)
        first = math.log(4 * math.expm1(two)) if two < math.log(2) else math.log(2) + two
        terms = [0.0, _ways(order, 2) + 2 * math.log(share) + first]
        terms += [_ways(order, j) + j * math.log(share) + (j - 1) * whole(j) + math.log(2) for j in range(3, order + 1)]
        most = max(terms)
        return (most + math.log(sum(math.exp(term - most) for term in terms))) / (order - 1)

    return divergence


def _ways(order: int, chosen: int) -> float:
    return math.lgamma(order + 1) - math.lgamma(chosen + 1) - math.lgamma(order - chosen + 1)
