"""Clipping: scales a vector down to a norm limit, so that no client changes a sum by more than that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import Codec, EncodedSize, check_tensor, vector_norm
from motet.codecs.row_layout import RowLayout
from motet.core.errors import ConfigError
from motet.core.rng import Seed

ROUNDING_MARGIN = 2e-7  # more than float32 numbers are rounded by


@dataclass(frozen=True)
class Clip(Codec):
    """Limits the L2 norm. Additive: the clipped vectors are what is summed."""

    limit: float
    name: str = "clip"
    is_additive: bool = True
    updates_only: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.limit < float("inf"):
            raise ConfigError(f"clip.limit is {self.limit}; expected the largest norm of an update, above 0.")

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, None]:
        return limit_norm(body, self.limit), None

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        return check_tensor(body, torch.float32, rows.size, "clip")

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(body=4 * rows.size, side_info=0)

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        """‖x‖ − limit, if x is longer than the limit."""
        norm = vector_norm(body)
        return max(0.0, norm - self.limit) + 1e-6 * norm


def limit_norm(vector: Tensor, limit: float) -> Tensor:
    """Scale a vector down to an L2 norm of at most `limit`, also after rounding. A shorter vector is returned as it is."""
    factor, result = 1.0, vector
    while (norm := vector_norm(result)) > limit:
        factor *= limit / norm * (1 - ROUNDING_MARGIN if factor < 1 else 1)
        result = vector * factor
    return result


def clip(limit: float = 1.0) -> Clip:
    """Scale updates down to an L2 norm of at most `limit`. Works with secure sums."""
    return Clip(limit)
