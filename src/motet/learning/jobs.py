"""What a client asks of its bench: to train, or to run a model over examples."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from motet.core.messages import message
from motet.core.params import Params
from motet.learning.features import NOTHING, Examples
from motet.learning.model import Model
from motet.learning.objectives import Objective
from motet.learning.readouts import Readout
from motet.learning.solver import Solver

CHUNK = 512  # rows of one piece of inference; fixed, so that results do not depend on how many workers share it


@message
@dataclass(frozen=True)
class Course:
    """A schedule that spans several fits: so many of its steps are done, so many there are."""

    done: int
    steps: int


@message
@dataclass(frozen=True, eq=False)
class Momenta:
    """What an optimiser remembers, for trainings that continue one another."""

    steps: int
    moments: tuple[Params, ...]


@message
@dataclass(frozen=True, eq=False)
class Beside:
    """Further examples, of which every step sees as many as its batch holds: drawn anew, or those with the batch's numbers.

    A batch holds their columns, and `paired`: 1 where there is such an example, 0 where the number is too high.
    """

    examples: Examples
    by_number: bool = False

    def batch(self, places: np.ndarray, rng: np.random.Generator) -> dict[str, Tensor]:
        count = len(self.examples)
        chosen = places if self.by_number else rng.integers(count, size=len(places))
        paired = torch.from_numpy((chosen < count).astype(np.float32))
        return {**self.examples.batch(np.minimum(chosen, count - 1)), "paired": paired}


@message
@dataclass(frozen=True, eq=False)
class Fit:
    """Train from `start` on `examples`. All randomness (order, dropout) follows from `seed`; `pace` is what the clients of a
    round share, so that their long batches meet."""

    model: Model
    start: Params
    examples: Examples
    objective: Objective
    solver: Solver
    seed: int
    anchor: Params | None = None  # what `solver.pull` pulls to; the start, if none is given
    course: Course | None = None
    momenta: Momenta | None = None
    keep_momenta: bool = False
    beside: Beside | None = None
    pace: int | None = None

    @property
    def key(self) -> Hashable:
        alone = self.seed if self.momenta is not None or self.keep_momenta else None
        own = (self.examples.features.key, *self.examples.extra)
        return ("fit", self.model.key, self.objective, self.solver.optimizer, self.solver.momentum, own, alone)

    @property
    def alone(self) -> bool:
        """Whether it cannot stand beside others: its objective looks into the module, or each step draws from a second set."""
        return self.beside is not None or getattr(self.objective, "alone", False)


@message
@dataclass(frozen=True, eq=False)
class Fitted:
    """A training's end: the parameters, and the loss of every step."""

    params: Params
    losses: Tensor
    processed: int
    momenta: Momenta | None = None

    @property
    def steps(self) -> int:
        return len(self.losses)


@message
@dataclass(frozen=True, eq=False)
class Infer:
    """Run a model over examples and keep what `readout` reads, a row an example, in the examples' order."""

    model: Model
    params: Params
    examples: Examples
    readout: Readout
    batch: int = 64

    @property
    def alone(self) -> bool:
        """Whether it cannot stand beside others: its readout looks into the module, or its examples are of no corpus."""
        return getattr(self.readout, "alone", False) or self.examples.features is NOTHING

    @property
    def key(self) -> Hashable:
        return ("infer", self.model.key, self.readout, self.examples.features.key, *self.examples.extra)

    def pieces(self) -> Iterator[Infer]:
        for at in range(0, len(self.examples), CHUNK):
            places = np.arange(at, min(at + CHUNK, len(self.examples)))
            yield Infer(self.model, self.params, self.examples.part(places), self.readout, self.batch)


Readings = dict[str, Tensor]
