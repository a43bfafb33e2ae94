"""Weights for the clients' logits, computed from their training statistics (AdaFD, eq. 6 and 7, and its baselines).

    RNWC  wᵏ ∝ 1 / (lᵏ + ε)          ENWC  wᵏ ∝ exp(−β (lᵏ + ε))          lᵏ: the smallest epoch loss of this round

A *local* rule depends only on the client's own statistics. The client can then weight its reply itself, and the
server needs to read only the sum. Local rules return logarithms, because weights of ENWC can underflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.script import ClientId, Note


@message
@dataclass(frozen=True)
class TrainingStats:
    """Statistics of a client's local training: numbers only, never texts or logits."""

    loss: float
    num_examples: int
    entropy: float = 0.0  # mean entropy of its predictions on the public data
    f1: float | None = None  # on its training data, if the weighting rule needs it
    class_counts: tuple[int, ...] = ()  # training examples per class, if the weighting rule needs them

    @property
    def is_usable(self) -> bool:
        """False if the client has no training examples or its loss is not finite."""
        return self.num_examples > 0 and math.isfinite(self.loss)


Stats = Mapping[ClientId, TrainingStats]


class WeightingRule(Protocol):
    """Computes the weights of the clients' logits on the server."""

    @property
    def required_stats(self) -> tuple[str, ...]:
        """Fields of TrainingStats needed besides `loss` and `num_examples`: f1, class_counts."""

    def weights(self, stats: Stats) -> tuple[Tensor, Note]:
        """Return unnormalized weights, [clients] or [clients, classes], and a note on how they were computed."""

    def check(self) -> None:
        """Raise a ConfigError, before training starts, if the rule cannot work."""


class LocalWeightingRule(Protocol):
    """Computes a client's weight from its own statistics.

    `max_log_weight` is the logarithm of the largest possible weight. It is None if weights are plain counts; then
    clients do not need to know their share of the total weight before they send their logits.
    """

    @property
    def max_log_weight(self) -> float | None: ...
    def log_weight(self, stats: TrainingStats) -> float: ...


@dataclass(frozen=True)
class ReciprocalWeights:
    """RNWC: weights inversely proportional to the loss."""

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    @property
    def max_log_weight(self) -> float:
        return -math.log(self.epsilon)

    def log_weight(self, stats: TrainingStats) -> float:
        return -math.log(max(stats.loss, 0.0) + self.epsilon)


@dataclass(frozen=True)
class ExponentialWeights:
    """ENWC: weights that decay exponentially with the loss. β = 0 gives equal weights; a large β selects one client."""

    beta: float = 5.0
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if not (self.beta >= 0 and math.isfinite(self.beta)):
            raise ConfigError(f"algorithm.beta is {self.beta}; expected a number >= 0 (5 in the paper).")
        _check_epsilon(self.epsilon)

    @property
    def max_log_weight(self) -> float:
        return 0.0

    def log_weight(self, stats: TrainingStats) -> float:
        return -self.beta * (max(stats.loss, 0.0) + self.epsilon)


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < 1:
        raise ConfigError(f"algorithm.epsilon is {epsilon}; expected a small number above 0, such as 1e-6.")


@dataclass(frozen=True)
class ExampleCountWeights:
    """Weights by number of training examples (DS-FL, MHAT and FedKD as run in AdaFD's paper)."""

    max_log_weight: None = None

    def log_weight(self, stats: TrainingStats) -> float:
        return math.log(stats.num_examples)


@dataclass(frozen=True)
class EqualWeights:
    max_log_weight: None = None

    def log_weight(self, stats: TrainingStats) -> float:
        return 0.0


@dataclass(frozen=True)
class LocalWeights:
    """Applies a local rule on the server."""

    rule: LocalWeightingRule
    required_stats: tuple[str, ...] = ()

    def weights(self, stats: Stats) -> tuple[Tensor, Note]:
        log_weights = torch.tensor([self.rule.log_weight(each) for each in stats.values()], dtype=torch.float64)
        return (log_weights - log_weights.max()).exp(), Note()

    def check(self) -> None: ...


@dataclass(frozen=True)
class ClassCountWeights:
    """Weights per class, by the client's number of examples of the class (FedKD as its authors define it)."""

    required_stats: tuple[str, ...] = ("class_counts",)

    def weights(self, stats: Stats) -> tuple[Tensor, Note]:
        counts = torch.tensor([each.class_counts for each in stats.values()], dtype=torch.float64)
        is_absent = counts.sum(0) == 0
        return torch.where(is_absent, torch.ones_like(counts), counts), Note()

    def check(self) -> None: ...


def normalize_weights(weights: Tensor) -> Tensor:
    """Scale weights to sum to one over clients. If all of them underflowed to zero, use equal weights."""
    total = weights.sum(0)
    return torch.where(total > 0, weights / total.clamp(min=torch.finfo(weights.dtype).tiny), 1.0 / len(weights))


def split_usable(stats: Stats) -> tuple[dict[ClientId, TrainingStats], list[ClientId]]:
    """Return the usable statistics, and the clients that are left out."""
    usable = {client: each for client, each in stats.items() if each.is_usable}
    return usable, [client for client in stats if client not in usable]
