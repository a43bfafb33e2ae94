"""FedProx (Li et al. 2020): FedAvg with a proximal term that keeps clients close to the global model, μ/2·‖w − wᵗ‖².

The training loop adds its gradient, μ(w − wᵗ): see `proximal_mu` in `learning/training/fit.py`.
"""

from __future__ import annotations

from dataclasses import replace

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def fedprox(
    solver: Solver = Solver(optimizer="sgd"),
    mu: float = 1.0,
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
) -> FedAvg:
    """FedAvg with a proximal term that keeps clients close to the global model (Li et al. 2020)."""
    solver = replace(solver, proximal_mu=mu)
    return FedAvg(solver, server, shared=Layers.parse(*shared), weighting=weighting, name="fedprox")
