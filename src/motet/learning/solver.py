"""How a local training goes: how long, in which batches, with which optimiser and schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from motet.core.errors import ConfigError
from motet.core.messages import message

RATES = {"sgd": 0.1, "adamw": 5e-5}


@message
@dataclass(frozen=True)
class Solver:
    """Local training of one client in one round; a new optimiser and schedule each time (FedNLP §2.6 of our notes)."""

    epochs: int = 1
    steps: int | None = None  # if given, so many steps instead of epochs, going round the data as often as needed
    batch: int = 32
    optimizer: Literal["sgd", "adamw"] = "adamw"
    lr: float | None = None  # None: 0.1 for sgd, 5e-5 for adamw
    weight_decay: float = 0.0  # on matrices only, as usual for Transformers
    momentum: float = 0.0  # of sgd
    schedule: Literal["linear", "constant"] = "linear"
    warmup: float = 0.06  # the share of the steps over which the rate rises
    clip: float = 1.0  # of the gradient's norm; 0 for none
    proximal_mu: float = 0.0  # ½·pull·‖w − anchor‖², FedProx's μ and Ditto's λ
    shuffle: bool = True
    bucket: int = (
        0  # texts of like length in one batch, out of windows of so many batches; 0: batches drawn from all texts
    )

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"solver.{name} is {getattr(self, name)}; it must be at least {low}.")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"solver.steps is {self.steps}; it must be at least 1, or left out to train by epochs.")
        if not 0 <= self.warmup < 1:
            raise ConfigError(f"solver.warmup is {self.warmup}; it is the share of steps, from 0 to below 1.")
        if self.bucket < 0 or (self.bucket and not self.shuffle):
            raise ConfigError(
                f"solver.bucket is {self.bucket} and solver.shuffle {self.shuffle}; buckets are windows of so many batches, at "
                "least 1, of shuffled texts (0 for none)."
            )
        if not (self.proximal_mu >= 0 and math.isfinite(self.proximal_mu)):
            raise ConfigError(
                f"mu (or lam, of ditto) is {self.proximal_mu:g}; it is how strongly clients are held near, at least 0."
            )
        if self.lr is not None and not (self.lr >= 0 and math.isfinite(self.lr)):
            raise ConfigError(f"solver.lr is {self.lr}; it must be a number of at least 0.")

    @property
    def learning_rate(self) -> float:
        return RATES[self.optimizer] if self.lr is None else self.lr

    def learning_rate_at(self, step: int, steps: int) -> float:
        """Linear warm-up over ⌈warmup·steps⌉ steps, then linear decay.

        transformers' scheduler gives the first step rate 0, which would waste a step of every local training. Here the
        first step has 1/⌈…⌉ of the rate and the last one a small one, so that every step of a short training counts.
        """
        if self.schedule == "constant":
            return self.learning_rate
        rising = max(1, math.ceil(self.warmup * steps))
        return self.learning_rate * min((step + 1) / rising, (steps - step) / max(1, steps - rising + 1))

    def num_steps(self, examples: int) -> int:
        """The number of steps for so many examples."""
        if not examples:
            return 0
        return self.steps if self.steps is not None else self.epochs * math.ceil(examples / self.batch)

    def draw_batches(self, examples: int, rng: np.random.Generator) -> list[np.ndarray]:
        """The examples of each step; the last batch of an epoch may be short and is kept."""
        batches: list[np.ndarray] = []
        steps = self.num_steps(examples)
        while len(batches) < steps:
            row = rng.permutation(examples) if self.shuffle else np.arange(examples)
            batches += [row[at : at + self.batch] for at in range(0, examples, self.batch)]
        return batches[:steps]
