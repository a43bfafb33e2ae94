"""The schedule of a job's steps: which examples each step reads, how much they count, and the learning rate.

It is computed before the first step. On a CPU, the host makes one client's batches as they are needed. On a GPU, the
corpus is on the device and a step selects its examples there by index; the host only advances the step counter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from motet.core.rng import Seed
from motet.learning.data.features import Examples
from motet.learning.jobs import Fit
from motet.learning.lr_schedule import LRHorizon
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.device_columns import DeviceColumns
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver

ReadBatch = Callable[[Examples, np.ndarray], Mapping[str, Tensor]]
ClientBatches = Sequence[Sequence[np.ndarray]]  # example indices by client and step


class StepSchedule(Protocol):
    """Clients are sorted by their number of steps, longest first. Step i computes the first `num_active(i)` clients."""

    def num_active(self, step: int) -> int: ...
    def start_step(self, step: int) -> Hashable:
        """Make a step the current one. Returns everything that a CUDA graph of it depends on."""

    def batch(self, clients: int) -> Batch: ...
    def example_weights(self, clients: int) -> Tensor | None:
        """Return [clients, rows]: 1 for an example, 0 for padding of a short batch; None if all are examples."""

    def learning_rates(self, clients: int) -> Tensor | list[float]: ...
    def record_losses(self, losses: Tensor) -> None:
        """Store the losses of the current step in `step_losses` and advance the step counter."""

    @property
    def step_losses(self) -> Tensor: ...
    def split_losses(self, step_losses: Tensor) -> list[Tensor]:
        """Return the losses of each client, from a copy of `step_losses`."""


def job_learning_rates(job: Fit, steps: int) -> tuple[float, ...]:
    return _learning_rates(job.solver, job.lr_horizon or LRHorizon(0, steps), steps)


@lru_cache(256)  # most clients of a round have the same number of steps
def _learning_rates(solver: Solver, horizon: LRHorizon, steps: int) -> tuple[float, ...]:
    return tuple(solver.learning_rate_at(horizon.done_steps + step, horizon.total_steps) for step in range(steps))


def draw_extra_examples(job: Fit, batches: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each step's extra examples and `has_pair`.

    They are drawn before the first step, so that it does not matter how often a batch is built.
    """
    if job.extra_examples is None:
        return []
    rng = Seed(job.seed).derive("beside").numpy()
    return [job.extra_examples.draw(indices, rng) for indices in batches]


class HostSchedule:
    """One client with batches made by the host."""

    def __init__(self, jobs: Sequence[Fit], batches: ClientBatches, model: PackedModel, read_batch: ReadBatch) -> None:
        (self.job,), (self.batches,) = jobs, batches
        self.read_batch, self.step, self.device = read_batch, 0, model.device
        self.extra_draws = draw_extra_examples(self.job, self.batches)
        self.rates = job_learning_rates(self.job, len(self.batches))
        self.step_losses = torch.zeros(len(self.batches), device=model.device)

    def num_active(self, step: int) -> int:
        return 1

    def start_step(self, step: int) -> Hashable:
        return None

    def batch(self, clients: int) -> Batch:
        batch = self.read_batch(self.job.examples, self.batches[self.step])
        if self.job.extra_examples is not None:
            batch = {**batch, **self.job.extra_examples.batch(*self.extra_draws[self.step])}
        return batch if self.device.type == "cpu" else {name: t.to(self.device) for name, t in batch.items()}

    def example_weights(self, clients: int) -> Tensor | None:
        return None

    def learning_rates(self, clients: int) -> list[float]:
        return [self.rates[self.step]]

    def record_losses(self, losses: Tensor) -> None:
        self.step_losses[self.step] = losses[0]
        self.step += 1

    def split_losses(self, step_losses: Tensor) -> list[Tensor]:
        return [step_losses.clone()]


class DeviceSchedule:
    """Many clients on a device.

    Its tables are in the packed model's buffers, where captured steps find the next job's.
    """

    def __init__(
        self,
        jobs: Sequence[Fit],
        batches: ClientBatches,
        model: PackedModel,
        dataset: DeviceDataset,
        leave_in_groups_of: int = 1,
    ) -> None:
        """Finished clients leave in groups of this size.

        Until then they read their shortest text at learning rate 0.
        """
        self.model, self.dataset = model, dataset
        self.reads_dataset = not jobs[0].examples.has_own_input_ids
        self.steps = [len(client) for client in batches]
        self.batch_rows = max((len(indices) for client in batches for indices in client), default=1)
        self.active = _active_clients(self.steps, leave_in_groups_of)
        self.step_rows = _step_rows(batches, self.batch_rows)
        indices, weights, rates = _schedule_tables(jobs, batches, self.batch_rows)
        is_read = np.arange(len(jobs)) < np.array(self.active, np.int64)[:, None]
        self.has_pair: Tensor | None = None
        self.columns = self._write_columns(jobs, batches, indices, weights, is_read)
        rows = np.stack([_corpus_rows(job, indices[:, i]) for i, job in enumerate(jobs)], 1)
        self.widths = dataset.step_widths(rows, is_read) if self.reads_dataset else [()] * self.steps[0]
        buffers = model.buffers.schedule
        self.rows = buffers.rows.write(torch.from_numpy(rows))
        self.weights = buffers.example_weights.write(torch.from_numpy(weights))
        self.rates = buffers.learning_rates.write(torch.from_numpy(rates))
        self.step_losses = buffers.losses.write(torch.zeros(self.steps[0], len(jobs)))
        self.step = buffers.step.write(torch.zeros(1, dtype=torch.int64))

    def _write_columns(
        self,
        jobs: Sequence[Fit],
        batches: ClientBatches,
        indices: np.ndarray,
        weights: np.ndarray,
        is_read: np.ndarray,
    ) -> dict[str, DeviceColumns]:
        """Write the columns that examples bring themselves, and those of extra examples."""
        columns: dict[str, DeviceColumns] = {}
        buffers = self.model.buffers
        if jobs[0].examples.extra_columns:
            examples = [job.examples for job in jobs]
            columns["examples"] = DeviceColumns(buffers.examples, examples, indices, weights, is_read)
        extra = [job.extra_examples.examples for job in jobs if job.extra_examples is not None]
        if extra:
            extra_indices, has_pair = np.zeros_like(indices), np.zeros_like(weights)
            for i, (job, client) in enumerate(zip(jobs, batches, strict=True)):
                for step, (drawn, exists) in enumerate(draw_extra_examples(job, client)):
                    extra_indices[step, i, : len(drawn)], has_pair[step, i, : len(drawn)] = drawn, exists
            self.has_pair = buffers.schedule.has_pair.write(torch.from_numpy(has_pair))
            columns["extra_examples"] = DeviceColumns(buffers.extra_examples, extra, extra_indices, weights, is_read)
        return columns

    def num_active(self, step: int) -> int:
        return self.active[step]

    def start_step(self, step: int) -> Hashable:
        self.step_widths, self.current_rows = self.widths[step], self.step_rows[step]
        self.column_widths = {name: columns.widths[step] for name, columns in self.columns.items()}
        dataset = id(self.dataset) if self.reads_dataset else None
        shapes = tuple((name, columns.shapes) for name, columns in self.columns.items())
        rows = (self.batch_rows, self.current_rows)
        return (dataset, rows, self.step_widths, shapes, tuple(self.column_widths.values()))

    def batch(self, clients: int) -> Batch:
        batch: dict[str, Tensor] = {}
        if self.reads_dataset:
            batch |= self.dataset.batch(self._current_examples(self.rows, clients), dict(self.step_widths))
        for name, columns in self.columns.items():
            batch |= columns.batch(self.step, self.example_weights(clients), self.column_widths[name])
        if self.has_pair is not None:
            batch["has_pair"] = self._current_examples(self.has_pair, clients)
        return batch

    def example_weights(self, clients: int) -> Tensor:
        return self._current(self.weights, clients)[:, : self.current_rows]

    def learning_rates(self, clients: int) -> Tensor:
        return self._current(self.rates, clients)

    def _current_examples(self, table: Tensor, clients: int) -> Tensor:
        return self._current(table, clients)[:, : self.current_rows].reshape(-1)

    def _current(self, table: Tensor, clients: int) -> Tensor:
        return table.index_select(0, self.step)[0, :clients]

    def record_losses(self, losses: Tensor) -> None:
        self.step_losses[:, : len(losses)].index_copy_(0, self.step, losses.unsqueeze(0))
        self.step += 1

    def split_losses(self, step_losses: Tensor) -> list[Tensor]:
        return [step_losses[:steps, i].clone() for i, steps in enumerate(self.steps)]


def _active_clients(steps: Sequence[int], group: int) -> list[int]:
    """Return how many clients each step computes, rounded up to a multiple of `group`."""
    running = (sum(client_steps > step for client_steps in steps) for step in range(steps[0]))
    return [min(len(steps), -(-count // group) * group) for count in running]


def _step_rows(batches: ClientBatches, batch_rows: int) -> list[int]:
    """Return how many examples of a client each step computes: its largest batch, rounded up to a quarter of a full one.

    The last batch of an epoch is often short, and more shapes than four would need too many CUDA graphs.
    """
    largest = [0] * len(batches[0])
    for client in batches:
        for step, batch in enumerate(client):
            largest[step] = max(largest[step], len(batch))
    quarter = -(-batch_rows // 4)
    return [min(batch_rows, -(-rows // quarter) * quarter) for rows in largest]


def _schedule_tables(
    jobs: Sequence[Fit], batches: ClientBatches, batch_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return example indices and weights [steps, clients, rows] and learning rates [steps, clients]."""
    steps, clients = len(batches[0]), len(jobs)
    indices = np.zeros((steps, clients, batch_rows), np.int64)
    weights = np.zeros((steps, clients, batch_rows), np.float32)
    rates = np.zeros((steps, clients), np.float32)
    columns = np.arange(batch_rows)
    for i, (job, client) in enumerate(zip(jobs, batches, strict=True)):
        own, count = indices[:, i], len(client)
        if count < steps:
            own[count:] = int(np.argmin(job.examples.lengths)) if len(job.examples) else 0
        if count:
            is_example = columns < np.array([len(batch) for batch in client])[:, None]
            own[:count] = np.array([batch[0] for batch in client])[:, None]  # fills a short batch, with weight 0
            own[:count][is_example] = np.concatenate(client)
            weights[:count, i] = is_example
        rates[:count, i] = job_learning_rates(job, count)
    return indices, weights, rates


def _corpus_rows(job: Fit, indices: np.ndarray) -> np.ndarray:
    return job.examples.rows[indices] if len(job.examples) else indices
