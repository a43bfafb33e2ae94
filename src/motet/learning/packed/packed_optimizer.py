"""One of torch's optimizers for all clients of a packed model, with one parameter vector and one learning rate each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

_NUMBERS = count(1)


class PackedOptimizer:
    """An element-wise optimizer on vectors [clients, size], which are views of the model's buffers.

    It calls torch's optimizers as functions: `torch.optim.Optimizer` would import torch's compiler in every process.

    It applies no weight decay: that acts on matrices only, and here a client's whole model is one vector. `number` is
    unique, so that a CUDA graph is never replayed with the state of a dropped optimizer.
    """

    def __init__(self, params: Tensor, grads: Tensor, state: Mapping[str, Tensor], kind: str, momentum: float) -> None:
        self.number = next(_NUMBERS)
        self.state = dict(state)  # by torch's names
        self.kind, self.momentum = kind, momentum
        self.params, self.grads = params.detach(), grads
        self.on_device = params.device.type != "cpu"
        self.steps = torch.zeros(len(params), device=params.device)
        # On a device every learning rate is a view of one tensor, so that a captured step can read new rates.
        self.learning_rates = torch.zeros(len(params), device=params.device) if self.on_device else None

    @torch.no_grad()
    def step(self, learning_rates: Sequence[float] | Tensor, clients: int) -> None:
        """Update the first clients."""
        if self.learning_rates is not None:
            self.learning_rates[:clients].copy_(torch.as_tensor(learning_rates))
        for i in range(clients):
            rate = float(learning_rates[i]) if self.learning_rates is None else self.learning_rates[i]
            update = self._apply_adamw if self.kind == "adamw" else self._apply_sgd
            update(i, rate)

    def _apply_adamw(self, i: int, rate: float | Tensor) -> None:
        adamw(
            [self.params[i]],
            [self.grads[i]],
            [self.state["exp_avg"][i]],
            [self.state["exp_avg_sq"][i]],
            [],
            [self.steps[i]],
            fused=True,
            capturable=self.on_device,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _apply_sgd(self, i: int, rate: float | Tensor) -> None:
        sgd(
            [self.params[i]],
            [self.grads[i]],
            [self.state["momentum_buffer"][i] if self.state else None],
            fused=True,
            weight_decay=0.0,
            momentum=self.momentum,
            lr=rate,  # type: ignore[arg-type] # a tensor on a device, as in torch.optim.SGD
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class PackedVectors(NamedTuple):
    """What a fused step reads and writes, [clients, size].

    `positions` [size] are the places of numbers in the vectors in bfloat16; -1 for a number that is not in them.
    """

    params: Tensor
    grads: Tensor
    bf16_params: Tensor | None = None
    bf16_grads: Tensor | None = None
    positions: Tensor | None = None

    def first(self, clients: int) -> PackedVectors:
        bf16_params = None if self.bf16_params is None else self.bf16_params[:clients]
        bf16_grads = None if self.bf16_grads is None else self.bf16_grads[:clients]
        return PackedVectors(self.params[:clients], self.grads[:clients], bf16_params, bf16_grads, self.positions)


class FusedOptimizer:
    """AdamW, or SGD if there is no state, as one Triton kernel.

    It also clips, and rounds the weights for the next step's products. After the last of `last_steps` its state is
    undefined; they are infinite if the state is kept.
    """

    def __init__(self, vectors: PackedVectors, state: Mapping[str, Tensor], kernels: ModuleType) -> None:
        self.number = next(_NUMBERS)
        self.vectors, self.state, self.kernels = vectors, dict(state), kernels
        self.steps, self.last_steps = torch.zeros(2, len(vectors.params), device=vectors.params.device)
        self.block_kinds = None if vectors.positions is None else kernels.block_kinds(vectors.positions)

    def round_weights(self) -> None:
        """Round all weights for the products of the first step."""
        params, bf16_params, positions = self.vectors.params, self.vectors.bf16_params, self.vectors.positions
        if bf16_params is not None:
            self.kernels.round_weights(params, bf16_params, positions, self.block_kinds)

    def step(self, learning_rates: Tensor, clients: int, clip_norms: Tensor | None) -> None:
        """Update the first clients. `clip_norms` are the largest norms of their gradients, [clients, 1]."""
        vectors = self.vectors.first(clients)
        scales = None
        if clip_norms is not None:
            norms = self.kernels.grad_norms(vectors.grads, vectors.bf16_grads, vectors.positions, self.block_kinds)
            scales = (clip_norms[:clients] / (norms + 1e-6)).clamp_(max=1)
        self.steps[:clients] += 1
        self.kernels.optimizer_step(
            vectors.params,
            vectors.grads,
            learning_rates.contiguous(),
            moments=tuple(moment[:clients] for moment in self.state.values()) or None,
            steps=self.steps[:clients],
            last_steps=self.last_steps[:clients],
            scales=scales,
            bf16_params=vectors.bf16_params,
            bf16_grads=vectors.bf16_grads,
            positions=vectors.positions,
            kinds=self.block_kinds,
        )
