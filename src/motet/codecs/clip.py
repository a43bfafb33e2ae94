"""Clipping: a vector longer than a limit is shortened to it, so that no client moves a sum by more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import ConfigError
from motet.core.rng import Seed


@dataclass(frozen=True)
class Clip:
    """At most `limit` long, in the Euclidean norm. Additive: what is summed is what was clipped."""

    limit: float
    name: str = "clip"
    additive: bool = True
    narrows: bool = False
    for_updates: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.limit < float("inf"):
            raise ConfigError(f"clip is {self.limit}; it is the length an update is cut to, above 0.")

    def shortened(self, body: Tensor) -> Tensor:
        length = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return body if length <= self.limit else body * (self.limit / length)

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, None]:
        return self.shortened(body), None

    def decode(self, body: Tensor, beside: Tensor | None, rows: RowLayout) -> Tensor:
        return check_tensor(body, torch.float32, rows.size, "clip")

    def after(self, rows: RowLayout) -> RowLayout:
        return rows

    def size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(4 * rows.size, 0)

    def error(self, body: Tensor, rows: RowLayout) -> float:
        """‖x‖ − limit, where x is longer."""
        length = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return max(0.0, length - self.limit) + 1e-6 * length


def clip(limit: float = 1.0) -> Clip:
    """No update is longer than this; secure sums bear it."""
    return Clip(limit)
