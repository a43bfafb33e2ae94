"""How much each client's opinion counts, from what it tells of its training (AdaFD, eq. 6 and 7; the baselines' own).

    RNWC  wᵏ ∝ 1 / (lᵏ + ε)          ENWC  wᵏ ∝ exp(−β (lᵏ + ε))          lᵏ: the least of this round's epoch losses

A weight that follows from the client's own account alone is a *local* one: the client can weigh its reply itself, so that the
server need read nothing but the sum. Rules give logarithms, since weights of ENWC may be smaller than any number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.script import ClientId, Note


@message
@dataclass(frozen=True)
class Account:
    """What a client tells of its training: numbers, never a text or a logit."""

    loss: float
    size: int
    entropy: float = 0.0  # of its opinions on the public texts, on average
    f1: float | None = None  # on its own training texts, where it is asked for
    counts: tuple[int, ...] = ()  # of its training examples by class, where they are asked for

    @property
    def sound(self) -> bool:
        """A client that trained on nothing, or whose loss is no number, has nothing to teach."""
        return self.size > 0 and math.isfinite(self.loss)


class Importance(Protocol):
    """`weights` are [clients] or, where classes have their own, [clients, classes]; they need not sum to one. The remark is
    what is worth saying of how they came about."""

    @property
    def asks(self) -> tuple[str, ...]:
        """What it needs of an account beyond loss and size: f1, counts."""

    def weights(self, accounts: Mapping[ClientId, Account]) -> tuple[Tensor, Note]: ...

    def ready(self) -> None:
        """What it needs beyond accounts and lacks is said before anybody trains."""


class LocalImportance(Protocol):
    """`largest` is the logarithm of the largest weight there can be; None where weights are just counted (examples), and need
    not be known beside one another before they are used."""

    @property
    def largest(self) -> float | None: ...
    def log_weight(self, account: Account) -> float: ...


@dataclass(frozen=True)
class Reciprocal:
    """RNWC."""

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    @property
    def largest(self) -> float:
        return -math.log(self.epsilon)

    def log_weight(self, account: Account) -> float:
        return -math.log(max(account.loss, 0.0) + self.epsilon)


@dataclass(frozen=True)
class Exponential:
    """ENWC. Large β: the client of least loss decides alone; β = 0: all count alike."""

    beta: float = 5.0
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if not (self.beta >= 0 and math.isfinite(self.beta)):
            raise ConfigError(f"algorithm.beta is {self.beta}; it is a number of at least 0 (the paper's is 5).")
        _check_epsilon(self.epsilon)

    @property
    def largest(self) -> float:
        return 0.0

    def log_weight(self, account: Account) -> float:
        return -self.beta * (max(account.loss, 0.0) + self.epsilon)


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < 1:
        raise ConfigError(f"algorithm.epsilon is {epsilon}; it is a small number above 0, such as 1e-6.")


@dataclass(frozen=True)
class BySize:
    """By the number of examples (DS-FL, MHAT, FedKD as AdaFD's paper runs them)."""

    largest: None = None

    def log_weight(self, account: Account) -> float:
        return math.log(account.size)


@dataclass(frozen=True)
class Equal:
    largest: None = None

    def log_weight(self, account: Account) -> float:
        return 0.0


@dataclass(frozen=True)
class Own:
    """Weights that each client could give itself."""

    rule: LocalImportance
    asks: tuple[str, ...] = ()

    def weights(self, accounts: Mapping[ClientId, Account]) -> tuple[Tensor, Note]:
        found = torch.tensor([self.rule.log_weight(account) for account in accounts.values()], dtype=torch.float64)
        return (found - found.max()).exp(), Note()

    def ready(self) -> None: ...


@dataclass(frozen=True)
class ByClass:
    """For each class by the client's examples of it (FedKD as its authors have it)."""

    asks: tuple[str, ...] = ("counts",)

    def weights(self, accounts: Mapping[ClientId, Account]) -> tuple[Tensor, Note]:
        counts = torch.tensor([account.counts for account in accounts.values()], dtype=torch.float64)
        nobody = counts.sum(0) == 0
        return torch.where(nobody, torch.ones_like(counts), counts), Note()

    def ready(self) -> None: ...


def shares(weights: Tensor) -> Tensor:
    """Summing to one over clients. Weights so small that they all vanish count alike."""
    total = weights.sum(0)
    return torch.where(total > 0, weights / total.clamp(min=torch.finfo(weights.dtype).tiny), 1.0 / len(weights))


def told_apart(accounts: Mapping[ClientId, Account]) -> tuple[dict[ClientId, Account], Sequence[ClientId]]:
    """Those whose account is sound, and those who are left out."""
    sound = {client: account for client, account in accounts.items() if account.sound}
    return sound, [client for client in accounts if client not in sound]
