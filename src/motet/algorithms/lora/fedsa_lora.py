"""FedSA-LoRA (Guo et al. 2025): average A, keep B with the client.

    A ← Σ pᵢ Aᵢ,   Bᵢ stays in the client's state

The authors observe that A learns what clients have in common, and B what is specific to a client.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.algorithms.lora.adapter_pairs import B_LAYERS
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def fedsa_lora(
    solver: Solver = Solver(lr=3e-4), server: ServerOptimizer = SGD(), weighting: Weighting = "examples"
) -> FedAvg:
    """Average the A of LoRA adapters; each client keeps its own B (Guo et al. 2025)."""
    return FedAvg(solver, server, shared=~B_LAYERS, weighting=weighting, name="fedsa_lora")
