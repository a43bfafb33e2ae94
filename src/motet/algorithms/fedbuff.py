"""FedBuff (Nguyen et al. 2022): asynchronous training with a buffer of updates.

    x ← SERVEROPT(x, 1/K Σ s(τᵢ) Δᵢ),   s(τ) = (1 + τ)^(−a)                                            (Algorithm 1)

M clients work at any time. When a client replies, another one starts with the current model. After K replies the server
applies their mean: a round is one update of the server. τᵢ is the number of updates since client i started. The mean is over
K, not over the weights, so that stale updates make a smaller step.

K is `buffer`, M is `cohort.size`, and a is `wait_policy.staleness_exponent` (0.5 in the paper). How the server waits is
not part of a script: with `wait_policy.buffer` every method of FedAvg's family runs asynchronously.

Where we differ: the paper draws the duration of each request. Ours follow from an emulated network and its devices.
"""

from __future__ import annotations

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import ConfigError
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


def fedbuff(solver: Solver = Solver(optimizer="sgd"), server: ServerOptimizer = SGD(), buffer: int = 4) -> FedAvg:
    """Clients work at their own pace, and the server averages `buffer` updates at a time (Nguyen et al. 2022)."""
    if buffer < 1:
        raise ConfigError(f"algorithm.buffer is {buffer}; expected at least one reply.")
    return FedAvg(solver, server, weighting="uniform", buffer=buffer, name="fedbuff")
