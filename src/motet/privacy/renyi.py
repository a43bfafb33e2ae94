"""Rényi divergences of Skellam noise, at whole orders.

    ε(α) ≤ α·Δ₂²/2μ + ((2α − 1)·Δ₂² + 6·Δ₁) / 4μ²                                             (Agarwal et al. 2021, for whole α)

In integers Δ₁ ≤ Δ₂², so with μ = (z·grain)² and Δ₂ a multiple of the grain nothing depends on how many numbers there are. The
second term falls with the grain; it is taken at the coarsest that a sum may have.
"""

from __future__ import annotations

from collections.abc import Callable

from motet.codecs.skellam import MIN_RESOLUTION

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
Divergence = Callable[[int], float]


def skellam_divergence(noise: float, clips: float) -> Divergence:
    """Of two sums at most `clips` clips apart, under noise with a deviation of `noise` clips."""
    apart, variance = clips * MIN_RESOLUTION, (noise * MIN_RESOLUTION) ** 2

    def divergence(order: int) -> float:
        return apart**2 * (order / (2 * variance) + (2 * order + 5) / (4 * variance**2))

    return divergence
