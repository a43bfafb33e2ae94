"""Server optimizers, which apply the mean update to the global model."""

from __future__ import annotations

from motet.optim.adaptive import Adagrad, Adam, Yogi
from motet.optim.server_optimizer import ServerOptimizer
from motet.optim.sgd import SGD, Momentum

SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
}

__all__ = ["SERVER_OPTIMIZERS", "SGD", "Adagrad", "Adam", "Momentum", "ServerOptimizer", "Yogi"]
