"""Jobs that a client submits to its executor: train a model, or run it over examples."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.work import Job
from motet.learning.data.features import NO_FEATURES, Examples, Ragged
from motet.learning.lr_schedule import LRHorizon
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

Predictions = dict[str, Tensor]


@message
@dataclass(frozen=True, eq=False)
class OptimizerState:
    """The state of an optimizer, so that a later job can continue with it."""

    steps: int  # of all jobs, also those that did not train some of the layers
    moments: tuple[Params, ...]  # SGD: momentum; AdamW: first and second moment


@message
@dataclass(frozen=True, eq=False)
class ExtraExamples:
    """Additional examples. Every step uses as many of them as its batch has rows.

    They are drawn at random, or chosen by the indices of the batch if `by_index`. Their columns are added to the batch,
    with `has_pair`: 1 if there is an extra example for the row, 0 if the index is out of range.
    """

    examples: Examples
    by_index: bool = False

    def draw(self, batch_indices: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the extra examples for a batch, and `has_pair`."""
        count = len(self.examples)
        indices = batch_indices if self.by_index else rng.integers(count, size=len(batch_indices))
        return np.minimum(indices, count - 1), (indices < count).astype(np.float32)

    def batch(self, indices: np.ndarray, has_pair: np.ndarray) -> dict[str, Tensor]:
        return {**self.examples.batch(indices), "has_pair": torch.from_numpy(has_pair)}


@message
@dataclass(frozen=True, eq=False)
class Fit(Job):
    """Train from `start` on `examples`.

    All randomness (order, dropout) follows from `seed`. `shuffle_seed` is shared by the clients of a round, so that
    their batches of long texts coincide (`training.batch_order`).
    """

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
    gradient_correction: Params | None = None  # added to the gradient of every step, before clipping
    train_only: Layers | None = None  # None: all layers
    base_update: Params | None = None  # added to frozen weights under adapters (`modules.frozen_weights`)

    @property
    def kind(self) -> Hashable:
        """Jobs of the same kind need the same kernels and, for each client, about as much memory."""
        extra_shapes = self.extra_examples and self.extra_examples.examples.extra_shapes
        data = (self.examples.features.key, self.examples.extra_shapes, extra_shapes)
        solver = self.solver
        training = (self.objective, solver.optimizer, solver.momentum, solver.micro_batch, self.train_only)
        return ("fit", self.model.key, *training, data)

    @property
    def key(self) -> Hashable:
        """Jobs with the same key can be packed together. A base update changes the one model that they share."""
        return (self.kind, id(self.base_update))

    @property
    def must_run_alone(self) -> bool:
        """True if the job cannot be packed with others, because its examples belong to no corpus."""
        return self.examples.features is NO_FEATURES

    @property
    def needs_full_model(self) -> bool:
        """True if the job needs the whole model, not only the layers above a frozen prefix."""
        return self.examples.has_own_input_ids or self.objective.needs_full_model


@message
@dataclass(frozen=True, eq=False)
class FitResult:
    """The trained parameters and the loss of every step."""

    params: Params
    losses: Tensor
    examples_processed: int
    optimizer_state: OptimizerState | None = None

    @property
    def steps(self) -> int:
        return len(self.losses)


@message
@dataclass(frozen=True, eq=False)
class Infer(Job):
    """Run a model over examples and return what `readout` reads: one row per example, in the order of the examples."""

    model: Model
    params: Params
    examples: Examples
    readout: Readout
    batch_size: int = 64
    base_update: Params | None = None

    @property
    def must_run_alone(self) -> bool:
        """True if the job cannot be packed with others.

        That is so if its readout uses the module directly, or if its inputs do not come from a corpus.
        """
        has_ragged = any(isinstance(column, Ragged) for column in self.examples.extra_columns.values())
        return (
            has_ragged
            or self.examples.has_own_input_ids
            or self.examples.features is NO_FEATURES
            or self.readout.must_run_alone
        )

    @property
    def needs_full_model(self) -> bool:
        return self.must_run_alone or self.readout.needs_full_model

    @property
    def kind(self) -> Hashable:
        """Jobs of the same kind need about as much memory for each text."""
        return ("infer", self.model.key, self.readout, self.examples.features.key, self.examples.extra_shapes)

    @property
    def key(self) -> Hashable:
        """Jobs with the same key can be packed together."""
        return (self.kind, id(self.base_update))

    def chunks(self) -> Iterator[Infer]:
        """Yield jobs for parts of the examples, in `chunk_order`."""
        order, size = self.chunk_order(), self.readout.chunk_rows
        for start in range(0, len(order), size):
            yield replace(self, examples=self.examples.select(order[start : start + size]))

    def chunk_order(self) -> np.ndarray:
        """Return the order in which chunks take the examples.

        A chunk that is smaller than a batch has texts of similar length, longest first: so workers finish together.
        """
        if self.readout.chunk_rows >= self.batch_size:
            return np.arange(len(self.examples))
        return np.argsort(-self.examples.lengths, kind="stable")
