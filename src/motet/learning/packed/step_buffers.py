"""The device tensors of a packed model that persist from step to step and from job to job.

Captured CUDA graphs read and write these tensors by address, so a buffer is reused while its contents fit. If it must grow,
it is reallocated and `generation` increases: graphs of an earlier generation must not be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet.learning.objectives.supervised import Objective
from motet.learning.packed.packed_optimizer import PackedOptimizer

Reallocated = Callable[[], None]
ClientScalar = Literal["clip_norm", "proximal_mu", "weight_decay"]


class VectorBuffer:
    """One vector per client, [clients, size], in one allocation for any such shape that fits."""

    def __init__(self, device: torch.device, on_reallocate: Reallocated, dtype: torch.dtype = torch.float32) -> None:
        self.device, self.on_reallocate, self.dtype = device, on_reallocate, dtype
        self.storage: Tensor | None = None

    def view(self, clients: int, size: int) -> Tensor:
        if self.storage is None or self.storage.numel() < clients * size:
            self.storage = torch.zeros(clients * size, dtype=self.dtype, device=self.device)
            self.on_reallocate()
        return self.storage[: clients * size].view(clients, size)


class TableBuffer:
    """A table that is written anew for each job. There is one allocation per shape of a row and dtype."""

    def __init__(self, device: torch.device, on_reallocate: Reallocated) -> None:
        self.device, self.on_reallocate = device, on_reallocate
        self.tables: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def write(self, values: Tensor) -> Tensor:
        """Copy values and return the whole table, which may have more rows than they do."""
        rows, key = len(values), (tuple(values.shape[1:]), values.dtype)
        table = self.tables.get(key)
        if table is None or len(table) < rows:
            capacity = 1 << (rows - 1).bit_length() if rows else 1
            self.tables[key] = table = torch.zeros(
                (capacity, *values.shape[1:]), dtype=values.dtype, device=self.device
            )
            self.on_reallocate()
        table[:rows].copy_(values, non_blocking=True)
        return table


class FlatBuffer:
    """Concatenated tables in one allocation per dtype, whatever the shape of a row. They may be large."""

    def __init__(self, device: torch.device, on_reallocate: Reallocated) -> None:
        self.device, self.on_reallocate = device, on_reallocate
        self.storage: dict[torch.dtype, Tensor] = {}

    def write(self, tables: Sequence[Tensor]) -> Tensor:
        """Copy the tables one after another.

        The result covers the whole buffer and has more rows than the tables: a captured graph checks indices against the
        length that it was captured with.
        """
        row_shape, dtype = tables[0].shape[1:], tables[0].dtype
        row_size = max(1, int(np.prod(row_shape)))
        size = row_size * sum(len(table) for table in tables)
        storage = self.storage.get(dtype)
        if storage is None or len(storage) < size:  # 1/8 more than needed: the next job's tables are seldom much larger
            capacity = size + size // 8 + row_size
            self.storage[dtype] = storage = torch.zeros(capacity, dtype=dtype, device=self.device)
            self.on_reallocate()
        start, joined = 0, storage[: len(storage) // row_size * row_size].view(-1, *row_shape)
        for table in tables:
            joined[start : start + len(table)].copy_(table, non_blocking=True)
            start += len(table)
        return joined


class ColumnBuffers(NamedTuple):
    """One extra column of all clients: its values, the offsets of ragged rows, and each client's first row."""

    values: FlatBuffer
    offsets: FlatBuffer
    first_rows: TableBuffer


class ExampleBuffers:
    """The extra columns of the clients' examples, and which examples each step reads."""

    def __init__(self, device: torch.device, on_reallocate: Reallocated) -> None:
        self.device, self.on_reallocate = device, on_reallocate
        self.indices = TableBuffer(device, on_reallocate)
        self.columns: dict[str, ColumnBuffers] = {}

    def column(self, name: str) -> ColumnBuffers:
        if name not in self.columns:
            self.columns[name] = ColumnBuffers(
                values=FlatBuffer(self.device, self.on_reallocate),
                offsets=FlatBuffer(self.device, self.on_reallocate),
                first_rows=TableBuffer(self.device, self.on_reallocate),
            )
        return self.columns[name]


class ScheduleBuffers:
    """The step schedule of a job: tables with one row per step, and the index of the current step."""

    def __init__(self, device: torch.device, on_reallocate: Reallocated) -> None:
        self.rows = TableBuffer(device, on_reallocate)
        self.example_weights = TableBuffer(device, on_reallocate)
        self.learning_rates = TableBuffer(device, on_reallocate)
        self.losses = TableBuffer(device, on_reallocate)
        self.has_pair = TableBuffer(device, on_reallocate)
        self.step = TableBuffer(device, on_reallocate)


class OptimizerKey(NamedTuple):
    kind: str
    momentum: float
    clients: int
    size: int


@dataclass
class StepBuffers:
    """All persistent tensors of one packed model, and the objects that hold views of them.

    An optimizer holds views of the parameters, their gradients and its state. It is dropped as soon as one of these is
    reallocated; other buffers do not affect it. A decay mask depends on shapes only and is never dropped.
    """

    device: torch.device
    generation: int = 0
    params: VectorBuffer = field(init=False)
    grads: VectorBuffer = field(init=False)
    bf16_params: VectorBuffer = field(init=False)
    proximal_anchors: VectorBuffer = field(init=False)
    optimizer_state: dict[str, VectorBuffer] = field(init=False)
    schedule: ScheduleBuffers = field(init=False)
    examples: ExampleBuffers = field(init=False)
    extra_examples: ExampleBuffers = field(init=False)
    client_scalars: dict[tuple[ClientScalar, int], Tensor] = field(default_factory=dict)
    decay_masks: dict[tuple[Objective, int], Tensor] = field(default_factory=dict)
    optimizers: dict[OptimizerKey, PackedOptimizer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.params = VectorBuffer(self.device, self._drop_optimizers)
        self.grads = VectorBuffer(self.device, self._drop_optimizers)
        self.bf16_params = VectorBuffer(self.device, self.invalidate_graphs, torch.bfloat16)
        self.proximal_anchors = VectorBuffer(self.device, self.invalidate_graphs)
        names = ("momentum_buffer", "exp_avg", "exp_avg_sq")  # as torch.optim calls them
        self.optimizer_state = {name: VectorBuffer(self.device, self._drop_optimizers) for name in names}
        self.schedule = ScheduleBuffers(self.device, self.invalidate_graphs)
        self.examples = ExampleBuffers(self.device, self.invalidate_graphs)
        self.extra_examples = ExampleBuffers(self.device, self.invalidate_graphs)

    def invalidate_graphs(self) -> None:
        self.generation += 1

    def _drop_optimizers(self) -> None:
        self.optimizers.clear()
        self.invalidate_graphs()

    def write_scalars(self, name: ClientScalar, values: Sequence[float]) -> Tensor:
        """Store one number per client as [clients, 1]."""
        key = (name, len(values))
        if key not in self.client_scalars:
            self.client_scalars[key] = torch.zeros(len(values), 1, device=self.device)
        self.client_scalars[key].copy_(torch.tensor(values).unsqueeze(1))
        return self.client_scalars[key]
