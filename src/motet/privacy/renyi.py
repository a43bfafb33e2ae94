"""Rényi divergences of Skellam noise, at integer orders.

    ε(α) ≤ α·Δ₂²/2μ + ((2α − 1)·Δ₂² + 6·Δ₁) / 4μ²                                       (Agarwal et al. 2021, for integer α)

For integers Δ₁ ≤ Δ₂². With μ = (z·resolution)² and Δ₂ a multiple of the resolution, the bound does not depend on the number
of parameters. The second term falls with the resolution, so the bound uses the smallest resolution that a sum may have.
"""

from __future__ import annotations

from collections.abc import Callable

from motet.codecs.skellam import MIN_RESOLUTION

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
Divergence = Callable[[int], float]


def skellam_divergence(noise_multiplier: float, clips: float) -> Divergence:
    """Return the divergence, by order, between two sums at most `clips` clips apart."""
    distance, variance = clips * MIN_RESOLUTION, (noise_multiplier * MIN_RESOLUTION) ** 2

    def divergence(order: int) -> float:
        return distance**2 * (order / (2 * variance) + (2 * order + 5) / (4 * variance**2))

    return divergence
