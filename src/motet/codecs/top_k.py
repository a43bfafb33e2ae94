"""Only the largest numbers of an update travel, and their places (Stich et al. 2018, Sparsified SGD with Memory).

What is left out is not lost: with error feedback the client keeps it, and adds it to its next update. Of weights, most of which
matter though they are small, nothing useful would be left; so this is for updates alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import ConfigError, WireError
from motet.core.rng import Seed


@dataclass(frozen=True)
class TopK:
    share: float
    feedback: bool
    name: str = "top_k"
    additive: bool = False
    narrows: bool = False
    for_updates: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"top_k.share is {self.share}; it is the share of numbers that travel, above 0 and at most 1."
            )

    def kept(self, rows: RowLayout) -> int:
        return max(1, math.ceil(self.share * rows.size - 1e-9))

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor]:
        places = torch.topk(body.abs(), self.kept(rows), sorted=False).indices.sort().values
        return body[places], places.to(torch.int32)

    def decode(self, body: Tensor, beside: Tensor | None, rows: RowLayout) -> Tensor:
        count = self.kept(rows)
        values = check_tensor(body, torch.float32, count, "top_k")
        places = check_tensor(beside, torch.int32, count, "top_k, places").long()
        if int(places.min()) < 0 or int(places.max()) >= rows.size:
            raise WireError(
                f"top_k: places {int(places.min())} to {int(places.max())} came; expected 0 to {rows.size - 1}."
            )
        return torch.zeros(rows.size, device=values.device).index_copy_(0, places, values)

    def after(self, rows: RowLayout) -> RowLayout:
        """The kept numbers are of one kind: all are large."""
        return RowLayout(((1, self.kept(rows)),))

    def size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(4 * self.kept(rows), 4 * self.kept(rows))

    def error(self, body: Tensor, rows: RowLayout) -> float:
        """√(1 − k/n)·‖x‖: the n − k smallest squares are at most their share of all squares."""
        norm = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return math.sqrt(1 - self.kept(rows) / rows.size) * norm * (1 + 1e-6)


def top_k(share: float = 0.01, feedback: bool = True) -> TopK:
    """The largest share of an update's numbers, 8 bytes each with their places; the rest is sent later (error feedback)."""
    return TopK(share, feedback)
