"""A few bits a number, on a grid whose step is that of its row: the row's largest value over the largest integer.

Stochastic rounding goes up or down in proportion to nearness, so that the expected value is the number itself, and errors of
many clients cancel in a mean instead of adding up (Alistarh et al. 2017, QSGD).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motet.codecs.chain import EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import RunError, WireError
from motet.core.rng import Seed

Rounding = Literal["stochastic", "nearest"]


@dataclass(frozen=True)
class Quantizer:
    """`bits` a number, and a scale of 4 bytes a row."""

    name: str
    bits: Literal[4, 8]
    rounding: Rounding
    additive: bool = False
    narrows: bool = True
    for_updates: bool = False

    @property
    def top(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor]:
        scales = rows.largest(body) / self.top
        if not torch.isfinite(scales).all():
            raise RunError(
                f"{self.name} was given numbers that are not finite; lower solver.lr or set solver.clip=1.0."
            )
        places = rows.over(body, torch.where(scales > 0, scales, 1.0))
        if self.rounding == "stochastic":
            places.add_(torch.rand(places.shape, generator=seed.torch(body.device), device=body.device)).floor_()
        whole = places.round_().clamp_(-self.top, self.top).to(torch.int8)
        return whole if self.bits == 8 else _two_a_byte(whole), scales

    def decode(self, body: Tensor, beside: Tensor | None, rows: RowLayout) -> Tensor:
        scales = check_tensor(beside, torch.float32, rows.count, f"{self.name}, scales")
        if self.bits == 8:
            whole = check_tensor(body, torch.int8, rows.size, self.name)
        else:
            whole = _one_a_byte(check_tensor(body, torch.uint8, -(-rows.size // 2), self.name), rows.size)
        if not torch.isfinite(scales).all():
            raise WireError(f"{self.name}: a scale came that is not finite; the message is damaged.")
        return rows.times(whole.to(torch.float32), scales)

    def after(self, rows: RowLayout) -> RowLayout:
        return rows

    def size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(-(-rows.size * self.bits // 8), 4 * rows.count)

    def error(self, body: Tensor, rows: RowLayout) -> float:
        """Less than a step for each number of a row; half a step if rounded to the nearest."""
        steps = rows.largest(body).double().cpu() / self.top
        bound = (
            math.sqrt(float((steps.square() * rows.lengths()).sum())) + math.sqrt(rows.size) * 1e-44
        )  # below: subnormal
        return bound * (1.0 if self.rounding == "stochastic" else 0.5) * (1 + 1e-4)  # arithmetic in single precision


def int8(rounding: Rounding = "stochastic") -> Quantizer:
    """1 byte a number and 4 a row: 255 steps; off by less than 1/127 of the row's largest number."""
    return Quantizer("int8", 8, rounding)


def int4(rounding: Rounding = "stochastic") -> Quantizer:
    """Half a byte a number and 4 bytes a row: 15 steps; off by less than 1/7 of the row's largest number."""
    return Quantizer("int4", 4, rounding)


def _two_a_byte(whole: Tensor) -> Tensor:
    """−7…7 as 1…15, the first of a pair in the low half; an odd one out is paired with 0."""
    shifted = (whole + 8).to(torch.uint8)
    pairs = torch.nn.functional.pad(shifted, (0, len(shifted) % 2)).view(-1, 2)
    return pairs[:, 0] | (pairs[:, 1] << 4)


def _one_a_byte(packed: Tensor, count: int) -> Tensor:
    pairs = torch.stack([packed & 15, packed >> 4], 1).view(-1)[:count]
    return pairs.to(torch.int8) - 8
