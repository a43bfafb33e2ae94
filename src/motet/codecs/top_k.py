"""Sends only the largest numbers of an update, with their indices (Stich et al. 2018, Sparsified SGD with Memory).

With error feedback the rest is not lost: the client adds it to its next update (`encode_with_feedback` in `codecs/chain.py`).
This codec is for updates only. Small weights matter too, so sparsified weights would be useless.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import Codec, EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import ConfigError, WireError
from motet.core.rng import Seed


@dataclass(frozen=True)
class TopK(Codec):
    share: float
    feedback: bool
    name: str = "top_k"
    updates_only: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"top_k.share is {self.share}; expected the share of numbers to send, above 0 and at most 1."
            )

    def count(self, rows: RowLayout) -> int:
        """Return how many numbers are sent."""
        return max(1, math.ceil(self.share * rows.size - 1e-9))

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor]:
        indices = torch.topk(body.abs(), self.count(rows), sorted=False).indices.sort().values
        return body[indices], indices.to(torch.int32)

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        count = self.count(rows)
        values = check_tensor(body, torch.float32, count, "top_k")
        indices = check_tensor(side_info, torch.int32, count, "top_k, indices").long()
        smallest, largest = int(indices.min()), int(indices.max())
        if smallest < 0 or largest >= rows.size:
            raise WireError(f"top_k: received indices {smallest} to {largest}; expected 0 to {rows.size - 1}.")
        return torch.zeros(rows.size, device=values.device).index_copy_(0, indices, values)

    def output_rows(self, rows: RowLayout) -> RowLayout:
        """One row: all numbers that are sent are large, so they can share a scale."""
        return RowLayout(((1, self.count(rows)),))

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(body=4 * self.count(rows), side_info=4 * self.count(rows))

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        """√(1 − k/n)·‖x‖: the n − k smallest squares are at most (n − k)/n of the sum of all squares."""
        norm = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return math.sqrt(1 - self.count(rows) / rows.size) * norm * (1 + 1e-6)


def top_k(share: float = 0.01, feedback: bool = True) -> TopK:
    """Send the largest numbers of an update, 8 bytes each with their indices; with error feedback the rest follows later."""
    return TopK(share, feedback)
