"""The device tensors of a packed model that persist from step to step and from job to job.

Captured CUDA graphs read and write these tensors by address, so a buffer is reused while its contents fit. If it must
grow, it is reallocated and `generation` increases: graphs of an earlier generation must not be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet.core.layers import Layers
from motet.learning.objectives.supervised import Objective
from motet.learning.packed.host_copy import write_from_host
from motet.learning.packed.packed_optimizer import FusedOptimizer, PackedOptimizer

OnReallocate = Callable[[], None]
ClientScalar = Literal["clip_norm", "proximal_mu", "weight_decay"]


class VectorBuffer:
    """One vector per client, [clients, size], in one allocation for any such shape that fits."""

    def __init__(self, device: torch.device, on_reallocate: OnReallocate, dtype: torch.dtype = torch.float32) -> None:
        self.device, self.on_reallocate, self.dtype = device, on_reallocate, dtype
        self.storage: Tensor | None = None

    def view(self, clients: int, size: int) -> Tensor:
        if self.storage is None or self.storage.numel() < clients * size:
            self.storage = torch.zeros(clients * size, dtype=self.dtype, device=self.device)
            self.on_reallocate()
        return self.storage[: clients * size].view(clients, size)


class TableBuffer:
    """A table that each job overwrites. There is one allocation per row shape and dtype."""

    def __init__(self, device: torch.device, on_reallocate: OnReallocate) -> None:
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
        write_from_host(table[:rows], values)
        return table


class FlatBuffer:
    """Concatenated tables in one allocation per dtype, whatever the shape of a row. They may be large."""

    def __init__(self, device: torch.device, on_reallocate: OnReallocate) -> None:
        self.device, self.on_reallocate = device, on_reallocate
        self.storage: dict[torch.dtype, Tensor] = {}

    def write(self, tables: Sequence[Tensor]) -> Tensor:
        """Copy the tables one after another.

        The result covers the whole buffer and has more rows than the tables: a captured graph checks indices against
        the length that it was captured with.
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

    def __init__(self, device: torch.device, on_reallocate: OnReallocate) -> None:
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

    def __init__(self, device: torch.device, on_reallocate: OnReallocate) -> None:
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
    is_fused: bool


class Generation:
    """Counts how often a buffer was reallocated."""

    def __init__(self) -> None:
        self.number = 0

    def advance(self) -> None:
        self.number += 1


class OptimizerCache:
    """Optimizers with views of the parameters, the gradients and their state. Dropped when one of these moves."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.optimizers: dict[OptimizerKey, PackedOptimizer | FusedOptimizer] = {}

    def invalidate(self) -> None:
        self.optimizers.clear()
        self.generation.advance()


class StepBuffers:
    """All persistent tensors of one packed model, and the objects that hold views of them.

    If a buffer moves, CUDA graphs are invalid; only if a vector of the optimizers moves, these are dropped too. A decay
    mask depends on shapes only and is never dropped. There is no reference cycle, so the tensors of a model that is no
    longer used are freed at once: collected later, they added 0.7 GB to the peak for a 6x384 model.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.device = device
        self._generation = Generation()
        self._optimizer_cache = OptimizerCache(self._generation)
        moved, optimizers_moved = self._generation.advance, self._optimizer_cache.invalidate
        self.params = VectorBuffer(device, optimizers_moved, dtype)
        self.grads = VectorBuffer(device, optimizers_moved, dtype)
        self.optimizer_state: dict[str, VectorBuffer] = {  # by torch's names
            name: VectorBuffer(device, optimizers_moved) for name in ("momentum_buffer", "exp_avg", "exp_avg_sq")
        }
        self.bf16_params = VectorBuffer(device, optimizers_moved, torch.bfloat16)
        self.bf16_grads = VectorBuffer(device, optimizers_moved, torch.bfloat16)
        self.proximal_anchors = VectorBuffer(device, moved)
        self.gradient_corrections = VectorBuffer(device, moved)
        self.schedule = ScheduleBuffers(device, moved)
        self.examples = ExampleBuffers(device, moved)
        self.extra_examples = ExampleBuffers(device, moved)
        self.client_scalars: dict[tuple[ClientScalar, int], Tensor] = {}
        self.decay_masks: dict[tuple[Objective, Layers | None, int], Tensor] = {}

    @property
    def generation(self) -> int:
        """Increases when a buffer moves. A CUDA graph is valid for one generation."""
        return self._generation.number

    @property
    def optimizers(self) -> dict[OptimizerKey, PackedOptimizer | FusedOptimizer]:
        return self._optimizer_cache.optimizers

    def invalidate_graphs(self) -> None:
        self._generation.advance()

    def write_scalars(self, name: ClientScalar, values: Sequence[float]) -> Tensor:
        """Store one number per client as [clients, 1]."""
        key = (name, len(values))
        if key not in self.client_scalars:
            self.client_scalars[key] = torch.zeros(len(values), 1, device=self.device)
        write_from_host(self.client_scalars[key], torch.tensor(values).unsqueeze(1))
        return self.client_scalars[key]
