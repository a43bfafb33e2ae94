"""Isolated training, the lower bound: FedAvg without shared layers."""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg
from motet.core.layers import Layers
from motet.learning.solver import Solver


def isolated(solver: Solver = Solver()) -> FedAvg:
    """Every client trains on its own data; nothing is exchanged."""
    return FedAvg(solver, shared=Layers.none(), name="isolated")
