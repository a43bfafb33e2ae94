"""Adaptive server optimizers of Reddi et al., "Adaptive Federated Optimization" (2021), Algorithm 2.

All three compute m ← β₁·m + (1−β₁)·Δ and x ← x + η·m/(√v + τ), with v₀ = τ² and without bias correction. They differ
in v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.messages import message
from motet.core.params import Params
from motet.optim.server_optimizer import ServerOptimizer


@message
@dataclass(frozen=True, eq=False)
class ServerMoments:
    first: Params
    second: Params


@dataclass(frozen=True)
class Adam(ServerOptimizer):
    """v ← β₂·v + (1−β₂)·Δ²."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, params: Params) -> ServerMoments:
        return _init_moments(params, self.tau)

    def step(self, params: Params, update: Params, state: ServerMoments) -> tuple[Params, ServerMoments]:
        return _step(self, params, update, state, lambda v, d2: self.beta2 * v + (1 - self.beta2) * d2)


@dataclass(frozen=True)
class Yogi(ServerOptimizer):
    """v ← v − (1−β₂)·Δ²·sign(v − Δ²)."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, params: Params) -> ServerMoments:
        return _init_moments(params, self.tau)

    def step(self, params: Params, update: Params, state: ServerMoments) -> tuple[Params, ServerMoments]:
        return _step(self, params, update, state, lambda v, d2: v - (1 - self.beta2) * d2 * torch.sign(v - d2))


@dataclass(frozen=True)
class Adagrad(ServerOptimizer):
    """v ← v + Δ². Reddi et al. run it without momentum (β₁ = 0)."""

    lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3

    def init(self, params: Params) -> ServerMoments:
        return _init_moments(params, self.tau)

    def step(self, params: Params, update: Params, state: ServerMoments) -> tuple[Params, ServerMoments]:
        return _step(self, params, update, state, lambda v, d2: v + d2)


def _init_moments(params: Params, tau: float) -> ServerMoments:
    return ServerMoments(params.zeros_like(), Params(params.layout, torch.full_like(params.flat, tau**2)))


def _step(
    optimizer: Adam | Yogi | Adagrad,
    params: Params,
    update: Params,
    state: ServerMoments,
    second_moment: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Params, ServerMoments]:
    update = update.to_device_of(state.first)
    m = state.first * optimizer.beta1 + update * (1 - optimizer.beta1)
    v = Params(params.layout, second_moment(state.second.flat, update.flat.square()))
    direction = Params(params.layout, m.flat / (v.flat.sqrt() + optimizer.tau))
    return params + direction * optimizer.lr, ServerMoments(m, v)
