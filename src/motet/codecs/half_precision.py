"""Sixteen bits a number: half the traffic. FedSplitBERT casts weights to float16 and back, with no scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import RunError
from motet.core.rng import Seed


@dataclass(frozen=True)
class HalfPrecision:
    """A cast to another kind of number. `relative` bounds its rounding, `tiny` that of numbers near zero."""

    name: str
    dtype: torch.dtype
    relative: float
    tiny: float
    additive: bool = False
    narrows: bool = True
    for_updates: bool = False

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, None]:
        cast = body.to(self.dtype)
        if not torch.isfinite(cast).all():
            raise RunError(
                f"{self.name} cannot hold numbers as large as {float(body.abs().max()):g}; it holds ±"
                f"{torch.finfo(self.dtype).max:g}. Use codec=bfloat16 or int8, or lower solver.lr if the training diverged."
            )
        return cast, None

    def decode(self, body: Tensor, beside: Tensor | None, rows: RowLayout) -> Tensor:
        return check_tensor(body, self.dtype, rows.size, self.name).to(torch.float32)

    def after(self, rows: RowLayout) -> RowLayout:
        return rows

    def size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(2 * rows.size, 0)

    def error(self, body: Tensor, rows: RowLayout) -> float:
        """|x − cast(x)| ≤ relative·|x| + tiny for each number."""
        return self.relative * float(torch.linalg.vector_norm(body, dtype=torch.float64)) + self.tiny * math.sqrt(
            rows.size
        )


def float16() -> HalfPrecision:
    """2 bytes a number: 11 significant bits, range ±65504; relative error at most 2⁻¹¹, absolute 2⁻²⁵ near zero."""
    return HalfPrecision("float16", torch.float16, 2.0**-11, 2.0**-25)


def bfloat16() -> HalfPrecision:
    """2 bytes a number: 8 significant bits and float32's range; relative error at most 2⁻⁸."""
    return HalfPrecision("bfloat16", torch.bfloat16, 2.0**-8, 2.0**-133)
