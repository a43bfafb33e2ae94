"""A value and how much it counts, and the one buffer in which many of them are summed."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params


@message
@dataclass(frozen=True, eq=False)
class Weighted:
    """x and w. A sum of these is (Σ w·x / Σ w, Σ w): what a server may read of a cohort that reveals only sums."""

    value: Params
    weight: float

    def scaled(self, factor: float) -> Weighted:
        """The same value, counting for more or less."""
        return Weighted(self.value, self.weight * factor)


class RunningSum:
    """Adds replies in place: a cohort of any size costs this one buffer."""

    def __init__(self) -> None:
        self.sum: Params | None = None
        self.weight = 0.0

    def add(self, client: str, reply: Weighted) -> None:
        if self.sum is None:
            self.sum = reply.value * reply.weight
        else:
            self.sum.fits(reply.value)
            self.sum.flat.add_(reply.value.beside(self.sum).flat, alpha=reply.weight)
        self.weight += reply.weight

    def value(self) -> Weighted:
        if self.sum is None:
            raise RunError("no client answered, so there is nothing to sum; see the failures above.")
        if not self.weight > 0:
            raise RunError(
                f"the weights of the replies sum to {self.weight:g}, and a mean needs a positive weight; "
                "give at least one client of the cohort some examples."
            )
        return Weighted(Params(self.sum.layout, self.sum.flat / self.weight), self.weight)
