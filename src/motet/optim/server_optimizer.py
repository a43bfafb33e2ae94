"""The interface of a server optimizer."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Real
from typing import Any, Protocol

from motet.core.errors import ConfigError
from motet.core.params import Params


class ServerOptimizer(Protocol):
    """Applies an update to the parameters. `update` is after − before, so a step adds it.

    Every server optimizer inherits from this class. It is a frozen dataclass, and its options are numbers.
    """

    @property
    def lr(self) -> float:
        """The learning rate."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, Real):  # also numbers of numpy
                quotes = " Write it without quotes." if isinstance(value, str) else ""
                raise ConfigError(f"server.{name} is {value!r}; expected a number.{quotes}")
            number = float(value)
            if name in ("momentum", "beta1", "beta2") and not 0 <= number < 1:
                raise ConfigError(f"server.{name} is {value}; it must be a number from 0 to below 1.")
            if not 0 <= number < math.inf or (name == "tau" and not number):
                bound = "above 0" if name == "tau" else ">= 0"
                raise ConfigError(f"server.{name} is {value}; it must be a finite number {bound}.")

    @abstractmethod
    def init(self, params: Params) -> Any:
        """Return the initial optimizer state."""

    @abstractmethod
    def step(self, params: Params, update: Params, state: Any) -> tuple[Params, Any]:
        """Return the new parameters and the new optimizer state."""
