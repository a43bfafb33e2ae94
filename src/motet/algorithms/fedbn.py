"""FedBN (Li et al. 2021): what normalises stays at home. Norms are neither sent nor overwritten; all else is FedAvg.

Transformers have layer norms where the paper has batch norms; every weight and bias of every norm is private.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer


def fedbn(
    solver: Solver = Solver(optimizer="sgd"), server: ServerOptimizer = Apply(), weighting: Weighting = "examples"
) -> FedAvg:
    """FedAvg whose clients keep their norms to themselves (Li et al. 2021)."""
    return FedAvg(solver, server, shared=~Layers.parse("norms"), weighting=weighting, name="fedbn")
