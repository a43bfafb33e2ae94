"""FedOpt (Reddi et al. 2021): FedAvg with an optimiser on the server.

`fedopt` is FedNLP's: AdamW on clients, SGD with momentum 0.9 and rate 1 on the server. The text of the paper says momentum 0.9
where its scripts leave it at 0; the default is the text's, and `server.momentum=0` the scripts'.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg, Weighting
from motet.learning.solver import Solver
from motet.optim import Adagrad, Adam, Momentum, ServerOptimizer, Yogi


def fedopt(
    solver: Solver = Solver(), server: ServerOptimizer = Momentum(), weighting: Weighting = "examples"
) -> FedAvg:
    """AdamW on clients, SGD with momentum on the server (Reddi et al. 2021, as FedNLP runs it)."""
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
