"""Sixteen bits a number: half the traffic. FedSplitBERT casts weights to float16 and back, with no scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Float16:
    """11 significant bits, range ±65504: relative error at most 2⁻¹¹ where numbers are not tiny (below 6e-5)."""

    name: str = "float16"
    additive: bool = False

    def encode(self, body: Tensor) -> Tensor:
        return body.to(torch.float16)

    def decode(self, body: Tensor) -> Tensor:
        return body.to(torch.float32)


@dataclass(frozen=True)
class BFloat16:
    """8 significant bits and float32's range: relative error at most 2⁻⁸."""

    name: str = "bfloat16"
    additive: bool = False

    def encode(self, body: Tensor) -> Tensor:
        return body.to(torch.bfloat16)

    def decode(self, body: Tensor) -> Tensor:
        return body.to(torch.float32)
