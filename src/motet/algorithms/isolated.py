"""Every client for itself: the lower bound. It is FedAvg of which no layer leaves the client."""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg
from motet.core.layers import Layers
from motet.learning.solver import Solver


def isolated(solver: Solver = Solver()) -> FedAvg:
    """Every client trains alone on its own data; nothing is exchanged."""
    return FedAvg(solver, shared=Layers.none(), name="isolated")
