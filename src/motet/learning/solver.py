"""Hyperparameters of local training: duration, batches, optimizer and learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.learning.lr_schedule import Schedule, learning_rate_factor

Optimizer = Literal["sgd", "adamw"]
Span = Literal["round", "run"]

DEFAULT_LEARNING_RATES = {"sgd": 0.1, "adamw": 5e-5}


@message
@dataclass(frozen=True)
class Solver:
    """How one client trains in one round.

    Each round starts with a new optimizer and schedule, as in FedNLP. With `schedule_span="run"`, one schedule spans all
    rounds. With `keep_state`, it does too, and a client continues with its optimizer of the last round it took part in,
    as in ordinary training.
    """

    epochs: int = 1  # passes over the client's data in one round
    steps: int | None = None  # if set, train this many steps instead of epochs, repeating the data as needed
    batch: int = 32  # examples per step
    micro_batch: int | None = None  # examples per forward pass, with accumulated gradients; None: the whole batch
    optimizer: Optimizer = "adamw"  # optimizer of the clients; `server` sets that of the server
    lr: float | None = None  # highest learning rate; None: 0.1 for sgd, 5e-5 for adamw
    weight_decay: float = 0.0  # weight decay, applied to matrices only, as usual for Transformers
    momentum: float = 0.0  # momentum of sgd
    schedule: Schedule = "linear"  # linear, cosine: the rate falls to 0 over `schedule_span`
    schedule_span: Span = "round"  # round: the schedule starts again in every round; run: it spans all rounds
    warmup: float = 0.06  # fraction of the steps in which the learning rate rises
    clip: float = 1.0  # maximum gradient norm; 0: no clipping
    proximal_mu: float = 0.0  # adds mu/2 * ||w - anchor||²: FedProx's μ and Ditto's λ
    shuffle: bool = True  # draw the examples of an epoch in random order
    keep_state: bool = False  # keep the optimizer between rounds, with one schedule over all rounds
    bucket: int = 0  # group texts of similar length within windows of this many batches; 0: no grouping

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name), str(field.type))
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"solver.{name} is {getattr(self, name)}; it must be at least 1.")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"solver.steps is {self.steps}; it must be at least 1. Leave it out to train by epochs.")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise ConfigError(
                f"solver.micro_batch is {self.micro_batch}; it must be at least 1. Leave it out for whole batches."
            )
        if not 0 <= self.warmup < 1:
            raise ConfigError(
                f"solver.warmup is {self.warmup}; it is a fraction of the steps, from 0 to below 1. "
                "Write e.g. solver.warmup=0.06."
            )
        if self.bucket < 0 or (self.bucket and not self.shuffle):
            raise ConfigError(
                f"solver.bucket is {self.bucket} and solver.shuffle is {self.shuffle}; bucketing needs shuffling and a "
                "window of at least 1 batch. Write solver.bucket=0 to turn it off."
            )
        for name in ("weight_decay", "clip"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"solver.{name} is {getattr(self, name)}; it must be a number >= 0. 0 turns it off.")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"solver.momentum is {self.momentum}; it must be a number from 0 to below 1.")
        if not (self.proximal_mu >= 0 and math.isfinite(self.proximal_mu)):
            raise ConfigError(f"mu (lam in ditto) is {self.proximal_mu:g}; it must be a finite number >= 0.")
        if self.lr is not None and not (self.lr >= 0 and math.isfinite(self.lr)):
            raise ConfigError(f"solver.lr is {self.lr}; it must be a finite number >= 0. Write e.g. solver.lr=0.001.")

    @property
    def spans_run(self) -> bool:
        """True if one learning-rate schedule spans all rounds."""
        return self.keep_state or self.schedule_span == "run"

    @property
    def learning_rate(self) -> float:
        return DEFAULT_LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    def learning_rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of one of so many steps."""
        return self.learning_rate * learning_rate_factor(self.schedule, self.warmup, step, steps)

    def total_learning_rate(self, steps: int) -> float:
        """Return the sum of the learning rates of all steps: K·η if the rate is constant."""
        return sum(self.learning_rate_at(step, steps) for step in range(steps))

    def require_plain_sgd(self, algorithm: str) -> None:
        """Raise an error if a step is not the learning rate times the gradient, or if the rate is 0."""
        if self.optimizer != "sgd" or self.momentum:
            raise ConfigError(
                f"{algorithm} is derived for SGD without momentum, but solver.optimizer is {self.optimizer} and "
                f"solver.momentum is {self.momentum:g}; set solver.optimizer=sgd and solver.momentum=0."
            )
        if not self.learning_rate:
            raise ConfigError(
                f"{algorithm} computes with the learning rate, but solver.lr is 0; write e.g. solver.lr=0.1."
            )
        self.require_new_schedule(algorithm, "computes with the learning rates of one round")
        self.require_new_optimizer(algorithm, "computes with the learning rates of one round")

    def require_new_schedule(self, algorithm: str, reason: str) -> None:
        """Raise an error if a schedule spans all rounds. `reason` completes: <algorithm> …"""
        if self.schedule_span == "run":
            raise ConfigError(f"solver.schedule_span is run, but {algorithm} {reason}; set solver.schedule_span=round.")

    def require_new_optimizer(self, algorithm: str, reason: str) -> None:
        """Raise an error if clients keep their optimizer between rounds. `reason` completes: <algorithm> …"""
        if self.keep_state:
            raise ConfigError(
                f"solver.keep_state is true, but {algorithm} {reason}, so no optimizer can be kept between rounds; set "
                "solver.keep_state=false."
            )

    def num_steps(self, num_examples: int) -> int:
        if not num_examples:
            return 0
        return self.steps if self.steps is not None else self.epochs * math.ceil(num_examples / self.batch)

    def draw_batches(self, num_examples: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the example indices of each step. The last batch of an epoch may be short."""
        batches: list[np.ndarray] = []
        steps = self.num_steps(num_examples)
        while len(batches) < steps:
            order = rng.permutation(num_examples) if self.shuffle else np.arange(num_examples)
            batches += [order[at : at + self.batch] for at in range(0, num_examples, self.batch)]
        return batches[:steps]


_KINDS: dict[str, tuple[type, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}
_CHOICES = {"Optimizer": get_args(Optimizer), "Schedule": get_args(Schedule), "Span": get_args(Span)}


def _check_type(name: str, value: Any, annotation: str) -> None:
    """Raise an error for a value of another type. A recipe converts its values; those of Python come as they are."""
    kind, _, is_optional = annotation.partition(" | ")
    if is_optional and value is None:
        return
    if kind in _CHOICES and value not in _CHOICES[kind]:
        raise ConfigError(f"solver.{name} is {value!r}; it must be one of {', '.join(_CHOICES[kind])}.")
    if kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"solver.{name} is {value!r}; expected true or false.")
    if kind in _KINDS and (isinstance(value, bool) or not isinstance(value, _KINDS[kind][0])):
        quotes = " Write it without quotes." if isinstance(value, str) else ""
        raise ConfigError(f"solver.{name} is {value!r}; expected {_KINDS[kind][1]}.{quotes}")
