"""One of torch's optimizers for all clients of a packed model, with one parameter vector and one learning rate each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

_NUMBERS = count(1)


class PackedOptimizer:
    """An element-wise optimizer on vectors [clients, size], which are views of the model's buffers.

    It applies no weight decay: that acts on matrices only, and here a client's whole model is one vector. `number` is
    unique, so that a CUDA graph is never replayed with the state of a dropped optimizer.
    """

    def __init__(self, params: Tensor, grads: Tensor, state: Mapping[str, Tensor], kind: str, momentum: float) -> None:
        self.number = next(_NUMBERS)
        self.state = dict(state)  # by torch's names
        self.vectors = [nn.Parameter(row) for row in params]
        for vector, grad in zip(self.vectors, grads, strict=True):
            vector.grad = grad
        on_device = params.device.type != "cpu"
        # On a device every learning rate is a view of one tensor, so that a captured step can read new rates.
        self.learning_rates = torch.zeros(len(self.vectors), device=params.device) if on_device else None
        groups: list[dict[str, Any]] = [{"params": [vector]} for vector in self.vectors]
        if kind == "adamw":
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                groups, weight_decay=0.0, fused=True, capturable=on_device
            )
        else:
            self.optimizer = torch.optim.SGD(groups, momentum=momentum, fused=True)
        self.groups = self.optimizer.param_groups
        self.steps = torch.zeros(len(self.vectors), device=params.device)
        for i, vector in enumerate(self.vectors):
            vector_state = self.optimizer.state[vector]
            vector_state.update({name: rows[i] for name, rows in self.state.items()})
            if kind == "adamw":
                vector_state["step"] = self.steps[i]
            if self.learning_rates is not None:
                self.groups[i]["lr"] = self.learning_rates[i]

    def step(self, learning_rates: Sequence[float] | Tensor, clients: int) -> None:
        """Update the first clients."""
        if self.learning_rates is not None:
            self.learning_rates[:clients].copy_(torch.as_tensor(learning_rates))
        else:
            for group, rate in zip(self.groups, learning_rates, strict=False):
                group["lr"] = float(rate)
        self.optimizer.param_groups = self.groups[:clients]
        self.optimizer.step()
