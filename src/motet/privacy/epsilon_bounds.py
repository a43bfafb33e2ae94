"""A lower bound of ε, from the number of secret coins that an attacker guesses correctly.

Coins decide independently what goes into one run: a text, or the update of a client. An attacker sees the result and
guesses some of the coins. Under (ε, δ)-differential privacy its correct guesses are hardly more than those of as many
coins that each show the guessed side with probability e^ε/(1 + e^ε) (Steinke, Nasr and Jagielski 2023). So many correct
guesses prove a large ε, from a single run.
"""

from __future__ import annotations

import math

import numpy as np

LARGEST_EPSILON = 50.0


def coin_epsilon_bound(coins: int, guesses: int, correct: int, delta: float, error: float) -> float:
    """Return an ε that the mechanism exceeds, except with probability `error`."""
    if correct == 0 or _probability(coins, guesses, correct, delta, 0.0) > error:
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _probability(coins, guesses, correct, delta, middle) <= error else (low, middle)
    return low


def _probability(coins: int, guesses: int, correct: int, delta: float, epsilon: float) -> float:
    """Return an upper bound of the probability of so many correct guesses under (ε, δ)-differential privacy.

    δ can add correct guesses: i of them with probability at most 2·coins·δ / i. The worst i counts.
    """
    from scipy.stats import binom

    rate = 1 / (1 + math.exp(-epsilon))
    extra = np.arange(1, correct + 1)
    slightly_fewer = np.cumsum(binom.pmf(correct - extra, guesses, rate))
    worst = float((slightly_fewer / extra).max())
    return float(binom.sf(correct - 1, guesses, rate)) + 2 * coins * delta * worst


def gaussian_epsilon(separation: float, delta: float) -> float:
    """Return the ε at δ of two normal distributions, `separation` standard deviations apart (Balle and Wang 2018)."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    if separation <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        shift = epsilon / separation
        # In logarithms: e^ε overflows long before the product does.
        second = math.exp(epsilon + float(norm.logcdf(-shift - separation / 2)))
        return float(norm.cdf(separation / 2 - shift)) - second - delta

    largest = separation**2 / 2 + 10 * separation  # δ is below 10⁻²³ there
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, largest, xtol=1e-6))
