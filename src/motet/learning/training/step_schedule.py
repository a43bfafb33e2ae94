"""What is done at each step of some clients' trainings: which examples, how much each counts, at which rate.

Everything is drawn up before the first step. On a CPU one client's batches are made as they are needed; on a GPU texts lie on
the device, a step takes its examples from there by number, and the host has nothing to do but to say "next".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from motet.core.rng import Seed
from motet.learning.data.features import Examples
from motet.learning.jobs import Fit, LRHorizon
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.device_columns import DeviceColumns
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel

Read = Callable[[Examples, np.ndarray], Mapping[str, Tensor]]
Orders = Sequence[Sequence[np.ndarray]]  # by client, by step: the examples' places


class StepSchedule(Protocol):
    """The clients are in the order of their steps, longest first; at step `at` the first `active(at)` are computed."""

    def active(self, at: int) -> int: ...
    def turn(self, at: int) -> Any:
        """Make step `at` the current one; returns what a recording of it depends on."""

    def batch(self, clients: int) -> Batch: ...
    def counts(self, clients: int) -> Tensor | None:
        """[clients, rows]: 1 for an example, 0 for one that only fills a short batch. None: all count."""

    def rates(self, clients: int) -> Tensor | list[float]: ...
    def note(self, losses: Tensor) -> None:
        """Keep the losses of this step, and go on to the next."""

    def losses(self) -> list[Tensor]: ...


def rates_of(job: Fit, steps: int) -> list[float]:
    course = job.lr_horizon or LRHorizon(0, steps)
    return [job.solver.learning_rate_at(course.done_steps + step, course.total_steps) for step in range(steps)]


class HostSchedule:
    """One client, whose batches are made by the host."""

    def __init__(self, jobs: Sequence[Fit], orders: Orders, pack: PackedModel, read: Read) -> None:
        (self.job,), (self.order,) = jobs, orders
        self.read, self.at, self.device = read, 0, pack.device
        self.beside = chosen_beside(self.job, self.order)
        self.rate = rates_of(self.job, len(self.order))
        self.seen = torch.zeros(len(self.order), device=pack.device)

    def active(self, at: int) -> int:
        return 1

    def turn(self, at: int) -> Any:
        return None

    def batch(self, clients: int) -> Batch:
        batch = self.read(self.job.examples, self.order[self.at])
        if self.job.extra_examples is not None:
            batch = {**batch, **self.job.extra_examples.batch(*self.beside[self.at])}
        return batch if self.device.type == "cpu" else {n: t.to(self.device) for n, t in batch.items()}

    def counts(self, clients: int) -> Tensor | None:
        return None

    def rates(self, clients: int) -> list[float]:
        return [self.rate[self.at]]

    def note(self, losses: Tensor) -> None:
        self.seen[self.at] = losses[0]
        self.at += 1

    def losses(self) -> list[Tensor]:
        return [self.seen.cpu()]


def chosen_beside(job: Fit, order: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each step the numbers of the examples beside its batch, and which of them there are; drawn before the first, so that
    it does not matter how often a batch is looked at."""
    rng = Seed(job.seed).derive("beside").numpy()
    return [job.extra_examples.draw(places, rng) for places in order] if job.extra_examples is not None else []


class DeviceSchedule:
    """Many clients, on a device. Its tensors stay where they are from fit to fit, so that recorded steps can be replayed."""

    def __init__(
        self, jobs: Sequence[Fit], orders: Orders, pack: PackedModel, resident: DeviceDataset, rung: int = 1
    ) -> None:
        """So many clients at a time leave when they have finished; until then they read their shortest text, at rate 0."""
        self.pack, self.resident, self.own_texts = pack, resident, jobs[0].examples.has_own_input_ids
        self.steps = [len(order) for order in orders]
        self.rows = max((len(b) for order in orders for b in order), default=1)
        longest, clients = self.steps[0], len(jobs)
        going_on = (sum(steps > at for steps in self.steps) for at in range(longest))
        self.taking = [min(clients, -(-many // rung) * rung) for many in going_on]
        places = np.zeros((longest, clients, self.rows), np.int64)
        counts = np.zeros((longest, clients, self.rows), np.float32)
        rates = np.zeros((longest, clients), np.float32)
        for i, (job, order) in enumerate(zip(jobs, orders, strict=True)):
            places[:, i] = int(np.argmin(job.examples.lengths)) if len(job.examples) else 0
            for at, some in enumerate(order):
                places[at, i, : len(some)] = some
                places[at, i, len(some) :] = some[0]  # a row of its own, which weighs nothing
                counts[at, i, : len(some)] = 1
            rates[: len(order), i] = rates_of(job, len(order))
        read = np.arange(clients) < np.array(self.taking, np.int64)[:, None]
        self.paired: Tensor | None = None
        self.columns = self._columns(jobs, orders, places, counts, read)
        rows = [job.examples.rows[places[:, i]] if len(job.examples) else places[:, i] for i, job in enumerate(jobs)]
        index = np.stack(rows, 1)
        self.widths = [()] * longest if self.own_texts else resident.widths(index, read)
        self.index, self.count, self.rate = (
            self._put(n, v) for n, v in (("index", index), ("count", counts), ("rate", rates))
        )
        self.seen = self._put("seen", np.zeros((longest, clients), np.float32))
        self.at = self._put("at", np.zeros(1, np.int64))

    def _columns(
        self, jobs: Sequence[Fit], orders: Orders, places: np.ndarray, counts: np.ndarray, read: np.ndarray
    ) -> list[DeviceColumns]:
        """What the examples bring themselves, and those that stand beside them."""
        found: list[DeviceColumns] = []
        if jobs[0].examples.extra_columns:
            found.append(DeviceColumns(self.pack, "own", [job.examples for job in jobs], places, counts, read))
        besides = [job.extra_examples.examples for job in jobs if job.extra_examples is not None]
        if besides:
            numbers, paired = np.zeros_like(places), np.zeros_like(counts)
            for i, (job, order) in enumerate(zip(jobs, orders, strict=True)):
                for at, (some, there) in enumerate(chosen_beside(job, order)):
                    numbers[at, i, : len(some)], paired[at, i, : len(some)] = some, there
            self.paired = self._put("paired", paired)
            found.append(DeviceColumns(self.pack, "beside", besides, numbers, counts, read))
        return found

    def _put(self, name: str, values: np.ndarray) -> Tensor:
        source = torch.from_numpy(values)
        return self.pack.keep(name, source.pin_memory() if self.pack.device.type == "cuda" else source)

    def active(self, at: int) -> int:
        return self.taking[at]

    def turn(self, at: int) -> Any:
        self.now, self.sizes = self.widths[at], [columns.widths[at] for columns in self.columns]
        texts = None if self.own_texts else id(self.resident)
        kinds = tuple((columns.name, columns.kind) for columns in self.columns)
        return (
            texts,
            self.rows,
            self.now,
            kinds,
            tuple(self.sizes),
        )  # a recording reads these, from tables of such shapes

    def batch(self, clients: int) -> Batch:
        batch: dict[str, Tensor] = {}
        if not self.own_texts:
            batch |= self.resident.batch(self._current(self.index, clients).reshape(-1), dict(self.now))
        for columns, widths in zip(self.columns, self.sizes, strict=True):
            batch |= columns.batch(self.at, self.counts(clients), widths)
        if self.paired is not None:
            batch["has_pair"] = self._current(self.paired, clients).reshape(-1)
        return batch

    def counts(self, clients: int) -> Tensor:
        return self._current(self.count, clients)

    def rates(self, clients: int) -> Tensor:
        return self._current(self.rate, clients)

    def _current(self, table: Tensor, clients: int) -> Tensor:
        return table.index_select(0, self.at)[0, :clients]

    def note(self, losses: Tensor) -> None:
        self.seen[:, : len(losses)].index_copy_(0, self.at, losses.unsqueeze(0))
        self.at += 1

    def losses(self) -> list[Tensor]:
        seen = self.seen.cpu()  # the one time in a fit that the host waits for the device
        return [seen[:steps, i].clone() for i, steps in enumerate(self.steps)]
