"""A sum that has not been divided yet."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params


@message
@dataclass(frozen=True, eq=False)
class Weighted:
    """Σ w·x and Σ w, so that it can be added, streamed and masked."""

    sum: Params
    weight: float

    @staticmethod
    def of(value: Params, weight: float) -> Weighted:
        return Weighted(value * weight, float(weight))

    def __add__(self, other: Weighted) -> Weighted:
        return Weighted(self.sum + other.sum, self.weight + other.weight)

    def scaled(self, factor: float) -> Weighted:
        return Weighted(self.sum * factor, self.weight * factor)

    def mean(self) -> Params:
        if not self.weight > 0:
            raise RunError(
                f"the weights of the replies sum to {self.weight:g}, and a mean needs a positive weight; "
                "give at least one client of the cohort some examples."
            )
        return Params(self.sum.layout, self.sum.flat / self.weight)


class RunningSum:
    """Adds replies in place: a cohort of any size costs this one buffer."""

    def __init__(self) -> None:
        self.so_far: Weighted | None = None

    def add(self, client: str, reply: Weighted) -> None:
        if self.so_far is None:
            own = Params(reply.sum.layout, reply.sum.flat.clone())
            self.so_far = Weighted(own, reply.weight)
        else:
            self.so_far.sum.fits(reply.sum)
            self.so_far.sum.flat.add_(reply.sum.flat)
            self.so_far = Weighted(self.so_far.sum, self.so_far.weight + reply.weight)

    def value(self) -> Weighted:
        if self.so_far is None:
            raise RunError("no client answered, so there is nothing to sum; see the failures above.")
        return self.so_far
