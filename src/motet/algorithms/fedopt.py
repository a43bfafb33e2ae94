"""FedOpt (Reddi et al. 2021): FedAvg with an optimizer on the server.

`fedopt` follows FedNLP: AdamW on clients, and SGD with momentum 0.9 and learning rate 1 on the server.

Where we differ: FedNLP's paper states momentum 0.9, but its scripts use 0. Our default follows the paper;
`server.momentum=0` follows the scripts.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.learning.solver import Solver
from motet.optim import Adagrad, Adam, Momentum, ServerOptimizer, Yogi


def fedopt(
    solver: Solver = Solver(), server: ServerOptimizer = Momentum(), weighting: Weighting = "examples"
) -> FedAvg:
    """AdamW on clients, SGD with momentum on the server (Reddi et al. 2021, as in FedNLP)."""
    return FedAvg(solver, server, weighting=weighting, name="fedopt")


def fedadam(solver: Solver = Solver(), server: ServerOptimizer = Adam(), weighting: Weighting = "examples") -> FedAvg:
    """Adam on the server (Reddi et al. 2021)."""
    return FedAvg(solver, server, weighting=weighting, name="fedadam")


def fedyogi(solver: Solver = Solver(), server: ServerOptimizer = Yogi(), weighting: Weighting = "examples") -> FedAvg:
    """Yogi on the server (Reddi et al. 2021)."""
    return FedAvg(solver, server, weighting=weighting, name="fedyogi")


def fedadagrad(
    solver: Solver = Solver(), server: ServerOptimizer = Adagrad(), weighting: Weighting = "examples"
) -> FedAvg:
    """Adagrad on the server (Reddi et al. 2021)."""
    return FedAvg(solver, server, weighting=weighting, name="fedadagrad")
