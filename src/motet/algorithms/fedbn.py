"""FedBN (Li et al. 2021): normalization layers are local. They are neither sent nor overwritten; the rest is FedAvg.

Where we differ: Transformers have layer norms where the paper has batch norms. All weights and biases of all norms
are local.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def fedbn(
    solver: Solver = Solver(optimizer="sgd"),
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
) -> FedAvg:
    """FedAvg with local normalization layers (Li et al. 2021). `shared`: of the other layers, those that are averaged."""
    return FedAvg(solver, server, Layers.parse(*shared), weighting=weighting, local=Layers.parse("norms"), name="fedbn")
