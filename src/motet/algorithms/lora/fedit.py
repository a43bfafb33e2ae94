"""FedIT (Zhang et al. 2024): FedAvg of LoRA adapters, for instruction tuning.

    A ← Σ pᵢ Aᵢ,   B ← Σ pᵢ Bᵢ

The mean of the products is not the product of the means: B A differs from Σ pᵢ Bᵢ Aᵢ. FedEx-LoRA and FLoRA correct
this, and FFA-LoRA and RoLoRA avoid it.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def fedit(
    solver: Solver = Solver(lr=3e-4), server: ServerOptimizer = SGD(), weighting: Weighting = "examples"
) -> FedAvg:
    """Average LoRA adapters with FedAvg and AdamW clients (Zhang et al. 2024)."""
    return FedAvg(solver, server, weighting=weighting, name="fedit")
