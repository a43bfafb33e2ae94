"""Weighted values and their running sum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params

BLOCK = 16  # clients whose terms are added one by one


@message
@dataclass(frozen=True, eq=False)
class Weighted:
    """A value x with its weight w. The sum of several is (Σ w·x / Σ w, Σ w): the weighted mean and the total weight."""

    value: Params
    weight: float

    def scale_weight(self, factor: float) -> Weighted:
        return Weighted(self.value, self.weight * factor)


@message
@dataclass(frozen=True)
class TermLimits:
    """The largest norm and weight of one term of a sum. A longer term is scaled down, a larger weight is reduced."""

    max_norm: float = math.inf
    max_weight: float = math.inf

    def apply(self, term: Weighted) -> Weighted:
        value, weight = term.value, min(term.weight, self.max_weight)
        norm = value.norm() if self.max_norm < math.inf else 0.0
        return Weighted(value * (self.max_norm / norm) if norm > self.max_norm else value, weight)


@message
@dataclass(frozen=True, eq=False)
class PartialSum:
    """Σ w·x and Σ w over some clients. `sum` is None if none of them replied."""

    sum: Params | None = None
    weight: float = 0.0

    def __add__(self, other: PartialSum) -> PartialSum:
        both = None if self.sum is None or other.sum is None else self.sum + other.sum
        return PartialSum(both or self.sum or other.sum, self.weight + other.weight)

    def mean(self) -> Weighted:
        if self.sum is None:
            raise RunError("no client replied, so there is nothing to sum; see the failures above.")
        if not self.weight > 0:
            raise RunError(
                f"the weights of the replies sum to {self.weight:g}, but a mean needs a positive weight; "
                "give at least one client of the cohort some examples."
            )
        return Weighted(Params(self.sum.layout, self.sum.flat / self.weight), self.weight)


class RunningSum:
    """Sums replies in place: memory use grows with the logarithm of the cohort.

    The terms of a block of clients are added one by one, and blocks in pairs, as a binary tree. Its shape depends on the
    cohort alone, so parts of a sum can be computed on several machines with the same bits.
    """

    def __init__(self, limits: TermLimits = TermLimits()) -> None:
        self.limits = limits
        self.block = PartialSum()
        self.subtrees: list[PartialSum] = []  # complete subtrees, largest first
        self.clients = 0

    def add(self, client: str, reply: Weighted) -> None:
        reply, sum_ = self.limits.apply(reply), self.block.sum
        if sum_ is None:
            sum_ = reply.value * reply.weight
        else:
            sum_.check_same_layout(reply.value)
            sum_.flat.add_(reply.value.to_device_of(sum_).flat, alpha=reply.weight)
        self.block = PartialSum(sum_, self.block.weight + reply.weight)
        self.skip()

    def skip(self) -> None:
        """Go on to the next client. One without a reply keeps its place in the tree."""
        self.clients += 1
        blocks, is_incomplete = divmod(self.clients, BLOCK)
        if is_incomplete:
            return
        self.subtrees, self.block = [*self.subtrees, self.block], PartialSum()
        while blocks % 2 == 0:  # the last two subtrees have the same size
            *self.subtrees, left, right = self.subtrees
            self.subtrees.append(left + right)
            blocks //= 2

    def part(self) -> PartialSum:
        return reduce(lambda right, left: left + right, reversed(self.subtrees), self.block)

    def value(self) -> Weighted:
        return self.part().mean()


def mean_of(terms: Iterable[Weighted]) -> Weighted:
    """Return the weighted mean of some terms, and their total weight."""
    total = RunningSum()
    for term in terms:
        total.add("", term)
    return total.value()
