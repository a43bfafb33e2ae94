"""FedProx (Li et al. 2020): FedAvg whose clients are held near the model they were sent, by μ/2·‖w − wᵗ‖²."""

from __future__ import annotations

from dataclasses import replace

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer


def fedprox(
    solver: Solver = Solver(optimizer="sgd"),
    mu: float = 1.0,
    server: ServerOptimizer = Apply(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
) -> FedAvg:
    """FedAvg with clients held near the model they were sent (Li et al. 2020)."""
    return FedAvg(replace(solver, proximal_mu=mu), server, Layers.parse(*shared), weighting, name="fedprox")
