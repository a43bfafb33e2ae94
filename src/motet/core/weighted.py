"""Weighted values and their running sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params


@message
@dataclass(frozen=True, eq=False)
class Weighted:
    """A value x with its weight w. The sum of several is (Σ w·x / Σ w, Σ w): the weighted mean and the total weight."""

    value: Params
    weight: float

    def scale_weight(self, factor: float) -> Weighted:
        return Weighted(self.value, self.weight * factor)


@dataclass(frozen=True)
class TermLimits:
    """The largest norm and weight of one term of a sum. A longer term is scaled down, a larger weight is reduced."""

    max_norm: float = math.inf
    max_weight: float = math.inf

    def apply(self, term: Weighted) -> Weighted:
        value, weight = term.value, min(term.weight, self.max_weight)
        norm = value.norm() if self.max_norm < math.inf else 0.0
        return Weighted(value * (self.max_norm / norm) if norm > self.max_norm else value, weight)


class RunningSum:
    """Sums replies in place, so that memory use does not grow with the cohort."""

    def __init__(self, limits: TermLimits = TermLimits()) -> None:
        self.limits = limits
        self.sum: Params | None = None
        self.weight = 0.0

    def add(self, client: str, reply: Weighted) -> None:
        reply = self.limits.apply(reply)
        if self.sum is None:
            self.sum = reply.value * reply.weight
        else:
            self.sum.check_same_layout(reply.value)
            self.sum.flat.add_(reply.value.to_device_of(self.sum).flat, alpha=reply.weight)
        self.weight += reply.weight

    def value(self) -> Weighted:
        if self.sum is None:
            raise RunError("no client replied, so there is nothing to sum; see the failures above.")
        if not self.weight > 0:
            raise RunError(
                f"the weights of the replies sum to {self.weight:g}, but a mean needs a positive weight; "
                "give at least one client of the cohort some examples."
            )
        return Weighted(Params(self.sum.layout, self.sum.flat / self.weight), self.weight)
