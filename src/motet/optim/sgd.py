"""Server optimizers without adaptive learning rates: plain averaging and momentum."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.params import Params
from motet.optim.server_optimizer import ServerOptimizer


@dataclass(frozen=True)
class SGD(ServerOptimizer):
    """x ← x + η·Δ. With η = 1 this is the plain average of the clients' models."""

    lr: float = 1.0

    def init(self, params: Params) -> None:
        return None

    def step(self, params: Params, update: Params, state: None) -> tuple[Params, None]:
        return params + (update if self.lr == 1 else update * self.lr), None


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """SGD with momentum: u ← μ·u + Δ (u = Δ in the first round), x ← x + η·u."""

    lr: float = 1.0
    momentum: float = 0.9

    def init(self, params: Params) -> Params:
        return params.zeros_like()

    def step(self, params: Params, update: Params, state: Params) -> tuple[Params, Params]:
        velocity = state * self.momentum + update
        return params + velocity * self.lr, velocity
