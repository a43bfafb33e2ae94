"""A codec that sends one byte per number: its sign, and one size for the whole vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.codecs import Codec
from motet.codecs.chain import EncodedSize
from motet.codecs.row_layout import RowLayout
from motet.core.errors import WireError
from motet.core.rng import Seed


@dataclass(frozen=True)
class Signs(Codec):
    """x becomes sign(x)·mean|x|. What is lost is added to the next reply."""

    name: str = "signs"
    must_be_last: bool = True
    updates_only: bool = True
    feedback: bool = True

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor | None]:
        return body.sign().to(torch.int8), body.abs().mean().reshape(1)

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        if side_info is None or body.dtype != torch.int8 or len(body) != rows.size:
            raise WireError("signs: the message is not a vector of signs; use the same codec on both sides.")
        return body.to(torch.float32) * side_info

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(body=rows.size, side_info=4)

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        return float((body - body.sign() * body.abs().mean()).norm()) * (1 + 1e-6)


def signs() -> Signs:
    """1 byte per number: its sign; with error feedback."""
    return Signs()
