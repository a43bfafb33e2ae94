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
from motet.learning.features import Examples
from motet.learning.jobs import Course, Fit
from motet.learning.objectives import Batch
from motet.learning.pack import Pack
from motet.learning.resident import Resident

Read = Callable[[Examples, np.ndarray], Mapping[str, Tensor]]
Orders = Sequence[Sequence[np.ndarray]]  # by client, by step: the examples' places


class Slate(Protocol):
    """The clients are in the order of their steps, longest first; at step `at` the first `active(at)` take part."""

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
    course = job.course or Course(0, steps)
    return [job.solver.rate_at(course.done + step, course.steps) for step in range(steps)]


class HostSlate:
    """One client, whose batches are made by the host."""

    def __init__(self, jobs: Sequence[Fit], orders: Orders, pack: Pack, read: Read) -> None:
        (self.job,), (self.order,) = jobs, orders
        self.read, self.at, self.device = _with_beside(self.job, read), 0, pack.device
        self.rate = rates_of(self.job, len(self.order))
        self.seen = torch.zeros(len(self.order), device=pack.device)

    def active(self, at: int) -> int:
        return 1

    def turn(self, at: int) -> Any:
        return None

    def batch(self, clients: int) -> Batch:
        batch = self.read(self.job.examples, self.order[self.at])
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


def _with_beside(job: Fit, read: Read) -> Read:
    """Batches with the examples that stand beside the job's own, if there are any."""
    beside = job.beside
    if beside is None:
        return read
    rng = Seed(job.seed).of("beside").numpy()
    return lambda examples, places: {**read(examples, places), **beside.batch(places, rng)}


class DeviceSlate:
    """Many clients, on a device. Its tensors stay where they are from fit to fit, so that recorded steps can be replayed."""

    def __init__(self, jobs: Sequence[Fit], orders: Orders, pack: Pack, resident: Resident) -> None:
        self.pack, self.resident = pack, resident
        self.steps = [len(order) for order in orders]
        self.rows = max((len(b) for order in orders for b in order), default=1)
        longest, clients = self.steps[0], len(jobs)
        index = np.zeros((longest, clients, self.rows), np.int64)
        counts = np.zeros((longest, clients, self.rows), np.float32)
        rates = np.zeros((longest, clients), np.float32)
        for i, (job, order) in enumerate(zip(jobs, orders, strict=True)):
            for at, places in enumerate(order):
                index[at, i, : len(places)] = places
                index[at, i, len(places) :] = places[0]  # a row of its own, which weighs nothing
                counts[at, i, : len(places)] = 1
            rates[: len(order), i] = rates_of(job, len(order))
        self._extras(jobs, index)
        for i, job in enumerate(jobs):
            index[:, i] = job.examples.rows[index[:, i]] if len(job.examples) else 0
        self.widths = resident.widths(index, self.steps)
        self.index, self.count, self.rate = (self._put(n, v) for n, v in (("index", index), ("count", counts), ("rate", rates)))
        self.seen = self._put("seen", np.zeros((longest, clients), np.float32))
        self.at = self._put("at", np.zeros(1, np.int64))

    def _extras(self, jobs: Sequence[Fit], places: np.ndarray) -> None:
        """Columns that examples bring themselves stand in one table, client after client."""
        self.extra: dict[str, Tensor] = {}
        names = list(jobs[0].examples.extra)
        if names:
            first = np.cumsum([0, *(len(j.examples) for j in jobs[:-1])])
            self.place = self._put("place", places + first[:, None])
            for name in names:
                columns = [j.examples.extra[name].to(self.pack.device) for j in jobs]
                self.extra[name] = self._keep(name, torch.cat(columns))

    def _put(self, name: str, values: np.ndarray) -> Tensor:
        source = torch.from_numpy(values)
        return self._keep(name, source.pin_memory() if self.pack.device.type == "cuda" else source)

    def _keep(self, name: str, values: Tensor) -> Tensor:
        """In the buffer of this name and shape; its first axis may be longer than the values."""
        shape, long = values.shape[1:], len(values)
        mark = ("slate", name, tuple(shape), values.dtype)
        kept: Tensor | None = self.pack.kept.get(mark)
        if kept is None or len(kept) < long:
            length = 1 << (long - 1).bit_length() if long else 1
            self.pack.kept[mark] = kept = torch.zeros((length, *shape), dtype=values.dtype, device=self.pack.device)
            self.pack.generation += 1
        kept[:long].copy_(values, non_blocking=True)
        return kept

    def active(self, at: int) -> int:
        return sum(steps > at for steps in self.steps)

    def turn(self, at: int) -> Any:
        self.now = self.widths[at]
        return id(self.resident), self.rows, self.now  # a recording reads these texts, from tables of this many rows

    def batch(self, clients: int) -> Batch:
        rows = self.index.index_select(0, self.at)[0, :clients].reshape(-1)
        batch = self.resident.batch(rows, dict(self.now))
        if self.extra:
            places = self.place.index_select(0, self.at)[0, :clients].reshape(-1)
            batch |= {name: column[places] for name, column in self.extra.items()}
        return batch

    def counts(self, clients: int) -> Tensor | None:
        return self.count.index_select(0, self.at)[0, :clients]

    def rates(self, clients: int) -> Tensor:
        return self.rate.index_select(0, self.at)[0, :clients]

    def note(self, losses: Tensor) -> None:
        self.seen[:, : len(losses)].index_copy_(0, self.at, losses.unsqueeze(0))
        self.at += 1

    def losses(self) -> list[Tensor]:
        seen = self.seen.cpu()  # the one time in a fit that the host waits for the device
        return [seen[:steps, i].clone() for i, steps in enumerate(self.steps)]
