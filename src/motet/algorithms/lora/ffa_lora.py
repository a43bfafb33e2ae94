"""FFA-LoRA (Sun et al. 2024): freeze A, train and average B.

    B ← Σ pᵢ Bᵢ,   so that B A = Σ pᵢ (Bᵢ A) exactly

All clients have the same random A, from the initial model. It is never sent: half of the traffic. The update is linear
in what is sent, so noise on B is not amplified by noise on A. This makes the method suitable for differential privacy.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.algorithms.lora.adapter_pairs import A_LAYERS
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def ffa_lora(
    solver: Solver = Solver(lr=3e-4), server: ServerOptimizer = SGD(), weighting: Weighting = "examples"
) -> FedAvg:
    """Train and average only the B of LoRA adapters; A stays at its random start (Sun et al. 2024)."""
    return FedAvg(solver, server, shared=~A_LAYERS, trained=~A_LAYERS, weighting=weighting, name="ffa_lora")
