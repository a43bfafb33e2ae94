"""Adaptive server optimisers of Reddi et al., "Adaptive Federated Optimization" (2021), Algorithm 2.

All three keep m ← β₁·m + (1−β₁)·Δ and step x ← x + η·m/(√v + τ), with v₀ = τ² and no bias correction; they differ in v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.messages import message
from motet.core.params import Params


@message
@dataclass(frozen=True, eq=False)
class Moments:
    first: Params
    second: Params


@dataclass(frozen=True)
class Adam:
    """v ← β₂·v + (1−β₂)·Δ²."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, params: Params) -> Moments:
        return _start(params, self.tau)

    def step(self, params: Params, update: Params, state: Moments) -> tuple[Params, Moments]:
        return _step(self, params, update, state, lambda v, d2: self.beta2 * v + (1 - self.beta2) * d2)


@dataclass(frozen=True)
class Yogi:
    """v ← v − (1−β₂)·Δ²·sign(v − Δ²)."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, params: Params) -> Moments:
        return _start(params, self.tau)

    def step(self, params: Params, update: Params, state: Moments) -> tuple[Params, Moments]:
        return _step(self, params, update, state, lambda v, d2: v - (1 - self.beta2) * d2 * torch.sign(v - d2))


@dataclass(frozen=True)
class Adagrad:
    """v ← v + Δ². Reddi et al. run it without momentum (β₁ = 0)."""

    lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3

    def init(self, params: Params) -> Moments:
        return _start(params, self.tau)

    def step(self, params: Params, update: Params, state: Moments) -> tuple[Params, Moments]:
        return _step(self, params, update, state, lambda v, d2: v + d2)


def _start(params: Params, tau: float) -> Moments:
    return Moments(params.zeros_like(), Params(params.layout, torch.full_like(params.flat, tau**2)))


def _step(
    rule: Adam | Yogi | Adagrad,
    params: Params,
    update: Params,
    state: Moments,
    second: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Params, Moments]:
    update = update.to_device_of(state.first)
    m = state.first * rule.beta1 + update * (1 - rule.beta1)
    v = Params(params.layout, second(state.second.flat, update.flat.square()))
    moved = Params(params.layout, m.flat / (v.flat.sqrt() + rule.tau))
    return params + moved * rule.lr, Moments(m, v)
