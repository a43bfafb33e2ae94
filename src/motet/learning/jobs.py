"""What a client asks of its executor: to train, or to run a model over examples."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from motet.core.messages import message
from motet.core.params import Params
from motet.learning.data.features import NO_FEATURES, Examples, Ragged
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

CHUNK = 512  # rows of one piece of inference; fixed, so that results do not depend on how many workers share it


@message
@dataclass(frozen=True)
class LRHorizon:
    """A schedule that spans several fits: so many of its steps are done, so many there are."""

    done_steps: int
    total_steps: int


@message
@dataclass(frozen=True, eq=False)
class OptimizerState:
    """What an optimiser remembers, for trainings that continue one another."""

    steps: int
    moments: tuple[Params, ...]


@message
@dataclass(frozen=True, eq=False)
class ExtraExamples:
    """Further examples, of which every step sees as many as its batch holds: drawn anew, or those with the batch's numbers.

    A batch holds their columns, and `paired`: 1 where there is such an example, 0 where the number is too high.
    """

    examples: Examples
    by_index: bool = False

    def draw(self, places: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of those beside a batch, and `paired`."""
        count = len(self.examples)
        drawn = places if self.by_index else rng.integers(count, size=len(places))
        return np.minimum(drawn, count - 1), (drawn < count).astype(np.float32)

    def batch(self, numbers: np.ndarray, paired: np.ndarray) -> dict[str, Tensor]:
        return {**self.examples.batch(numbers), "has_pair": torch.from_numpy(paired)}


@message
@dataclass(frozen=True, eq=False)
class Fit:
    """Train from `start` on `examples`. All randomness (order, dropout) follows from `seed`; `shuffle_seed` is shared by
    the clients of a round, so that their long batches coincide."""

    model: Model
    start: Params
    examples: Examples
    objective: Objective
    solver: Solver
    seed: int
    proximal_anchor: Params | None = None  # center of the proximal term; None: `start`
    lr_horizon: LRHorizon | None = None
    optimizer_state: OptimizerState | None = None
    keep_optimizer_state: bool = False
    extra_examples: ExtraExamples | None = None
    shuffle_seed: int | None = None

    @property
    def key(self) -> Hashable:
        own = (
            self.examples.features.key,
            self.examples.extra_shapes,
            self.extra_examples and self.extra_examples.examples.extra_shapes,
        )
        return ("fit", self.model.key, self.objective, self.solver.optimizer, self.solver.momentum, own)

    @property
    def must_run_alone(self) -> bool:
        """Whether it cannot stand beside others: its examples are of no corpus."""
        return self.examples.features is NO_FEATURES

    @property
    def needs_full_model(self) -> bool:
        """Whether it needs the whole module, and not just what stands above a frozen prefix."""
        return self.examples.has_own_input_ids or getattr(self.objective, "needs_full_model", False)


@message
@dataclass(frozen=True, eq=False)
class FitResult:
    """A training's end: the parameters, and the loss of every step."""

    params: Params
    losses: Tensor
    examples_processed: int
    optimizer_state: OptimizerState | None = None

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
    batch_size: int = 64

    @property
    def must_run_alone(self) -> bool:
        """Whether it cannot stand beside others: its readout looks into the module, or its examples are of no corpus."""
        ragged = any(isinstance(column, Ragged) for column in self.examples.extra_columns.values())
        return (
            ragged
            or self.examples.has_own_input_ids
            or self.examples.features is NO_FEATURES
            or getattr(self.readout, "must_run_alone", False)
        )

    @property
    def needs_full_model(self) -> bool:
        return self.must_run_alone

    @property
    def key(self) -> Hashable:
        return ("infer", self.model.key, self.readout, self.examples.features.key, self.examples.extra_shapes)

    def chunks(self) -> Iterator[Infer]:
        for at in range(0, len(self.examples), CHUNK):
            places = np.arange(at, min(at + CHUNK, len(self.examples)))
            yield Infer(self.model, self.params, self.examples.select(places), self.readout, self.batch_size)


Predictions = dict[str, Tensor]
