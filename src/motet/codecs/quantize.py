"""Quantization to 8 or 4 bits per number, with one scale per row: the row's largest value over the largest integer.

Stochastic rounding rounds up or down with a probability in proportion to the distance. The expected value is then the
number itself, and the errors of many clients cancel in a mean (Alistarh et al. 2017, QSGD).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motet.codecs.chain import Codec, EncodedSize, check_tensor
from motet.codecs.row_layout import RowLayout
from motet.core.errors import RunError, WireError
from motet.core.rng import Seed

Rounding = Literal["stochastic", "nearest"]


@dataclass(frozen=True)
class Quantizer(Codec):
    """`bits` per number, and a float32 scale per row."""

    name: str
    bits: Literal[4, 8]
    rounding: Rounding
    must_be_last: bool = True

    @property
    def max_level(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor]:
        scales = rows.max_abs(body) / self.max_level
        if not torch.isfinite(scales).all():
            raise RunError(f"{self.name} got numbers that are not finite; lower solver.lr, or set solver.clip=1.0.")
        levels = rows.divide(body, torch.where(scales > 0, scales, 1.0))
        if self.rounding == "stochastic":
            levels.add_(torch.rand(levels.shape, generator=seed.torch(body.device), device=body.device)).floor_()
        integers = levels.round_().clamp_(-self.max_level, self.max_level).to(torch.int8)
        return integers if self.bits == 8 else _pack_pairs(integers), scales

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        scales = check_tensor(side_info, torch.float32, rows.row_count, f"{self.name}, scales")
        if self.bits == 8:
            integers = check_tensor(body, torch.int8, rows.size, self.name)
        else:
            integers = _unpack_pairs(check_tensor(body, torch.uint8, -(-rows.size // 2), self.name), rows.size)
        if not torch.isfinite(scales).all():
            raise WireError(f"{self.name}: received a scale that is not finite; the message is damaged.")
        return rows.multiply(integers.to(torch.float32), scales)

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(body=-(-rows.size * self.bits // 8), side_info=4 * rows.row_count)

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        """One step per number, or half a step if rounded to the nearest."""
        steps = rows.max_abs(body).double().cpu() / self.max_level
        subnormal_error = math.sqrt(rows.size) * 1e-44
        bound = math.sqrt(float((steps.square() * rows.row_lengths()).sum())) + subnormal_error
        float32_slack = 1 + 1e-4
        return bound * (1.0 if self.rounding == "stochastic" else 0.5) * float32_slack


def int8(rounding: Rounding = "stochastic") -> Quantizer:
    """1 byte per number and 4 per row: 255 levels; error below 1/127 of the row's largest number."""
    return Quantizer("int8", bits=8, rounding=rounding)


def int4(rounding: Rounding = "stochastic") -> Quantizer:
    """Half a byte per number and 4 bytes per row: 15 levels; error below 1/7 of the row's largest number."""
    return Quantizer("int4", bits=4, rounding=rounding)


def _pack_pairs(integers: Tensor) -> Tensor:
    """Pack two numbers from −7…7 into a byte, as 1…15, the first in the low half.

    An odd last number is paired with 0.
    """
    shifted = (integers + 8).to(torch.uint8)
    pairs = torch.nn.functional.pad(shifted, (0, len(shifted) % 2)).view(-1, 2)
    return pairs[:, 0] | (pairs[:, 1] << 4)


def _unpack_pairs(packed: Tensor, count: int) -> Tensor:
    pairs = torch.stack([packed & 15, packed >> 4], 1).view(-1)[:count]
    return pairs.to(torch.int8) - 8
