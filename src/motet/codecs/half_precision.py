"""16 bits per number, half the traffic.

FedSplitBERT casts weights to float16 and back in the same way, without a scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs.chain import Codec, EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import RunError
from motet.core.rng import Seed


@dataclass(frozen=True)
class HalfPrecision(Codec):
    """A cast to another dtype.

    `relative_error` bounds the rounding error, `absolute_error` that of numbers near zero.
    """

    name: str
    dtype: torch.dtype
    relative_error: float
    absolute_error: float
    must_be_last: bool = True

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, None]:
        cast = body.to(self.dtype)
        if not torch.isfinite(cast).all():
            raise RunError(
                f"{self.name} cannot represent numbers as large as {float(body.abs().max()):g}; its range is ±"
                f"{torch.finfo(self.dtype).max:g}. Use codec=bfloat16 or int8, or lower solver.lr if training diverged."
            )
        return cast, None

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        return check_tensor(body, self.dtype, rows.size, self.name).to(torch.float32)

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(body=2 * rows.size, side_info=0)

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        """|x − cast(x)| ≤ relative_error·|x| + absolute_error for each number."""
        norm = float(torch.linalg.vector_norm(body, dtype=torch.float64))
        return self.relative_error * norm + self.absolute_error * math.sqrt(rows.size)


def float16() -> HalfPrecision:
    """2 bytes per number: 11 significant bits, range ±65504; relative error at most 2⁻¹¹, absolute 2⁻²⁵ near zero."""
    return HalfPrecision("float16", torch.float16, relative_error=2.0**-11, absolute_error=2.0**-25)


def bfloat16() -> HalfPrecision:
    """2 bytes per number: 8 significant bits and the range of float32; relative error at most 2⁻⁸."""
    return HalfPrecision("bfloat16", torch.bfloat16, relative_error=2.0**-8, absolute_error=2.0**-133)
