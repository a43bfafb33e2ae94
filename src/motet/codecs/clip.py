"""Clipping: a vector longer than a limit is shortened to it, so that no client moves a sum by more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.errors import ConfigError


@dataclass(frozen=True)
class Clip:
    """At most `limit` long, in the Euclidean norm. Additive: what is summed is what was clipped."""

    limit: float
    name: str = "clip"
    additive: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.limit < float("inf"):
            raise ConfigError(f"privacy.clip is {self.limit}; it is the length an update is cut to, above 0.")

    def encode(self, body: Tensor) -> Tensor:
        length = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return body if length <= self.limit else body * (self.limit / length)

    def decode(self, body: Tensor) -> Tensor:
        return body
