"""What packed layers do besides products, in one pass over the rows where torch's own operations take several.

Written in Triton, which comes with torch for GPUs. On an H200 a step of four clients spent more time in such passes than in
its products. `learning/packed/packed_layers.py` does the same by torch's operations where this cannot be imported.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 4096  # numbers of a row that a program holds at once
_TILE = 2048  # numbers that a program holds at once
_PROGRAMS = 512  # that sum gradients: a few for each processor of a large card
_card: Any = torch.cuda.device_of  # of a tensor; Triton would take the current one


@triton.jit
def _norm(  # type: ignore[no-untyped-def]
    x, weight, bias, y, halved, mean, scale, rows, width, eps,
    half: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tall + tl.arange(0, tall)
    column = tl.arange(0, wide)
    there = (row < rows)[:, None] & (column < width)[None, :]
    at = (client * rows + row)[:, None] * width + column[None, :]
    own = client * width + column
    values = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    middle = tl.sum(values, 1) / width
    apart = tl.where(there, values - middle[:, None], 0.0)
    found = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / width + eps)
    times = tl.load(weight + own, mask=column < width, other=0.0)
    plus = tl.load(bias + own, mask=column < width, other=0.0)
    out = apart * found[:, None] * times[None, :] + plus[None, :]
    tl.store(y + at, out, mask=there)
    if half:
        tl.store(halved + at, out.to(tl.bfloat16), mask=there)
    tl.store(mean + client * rows + row, middle, mask=row < rows)
    tl.store(scale + client * rows + row, found, mask=row < rows)


@triton.jit
def _unnorm(  # type: ignore[no-untyped-def]
    first, second, x, mean, scale, weight, to_x, sums, rows, width,
    one: tl.constexpr, other: tl.constexpr, tiles: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    part, parts, client, clients = (
        tl.program_id(0),
        tl.num_programs(0),
        tl.program_id(1).to(tl.int64),
        tl.num_programs(1),
    )
    column = tl.arange(0, wide)
    times = tl.load(weight + client * width + column, mask=column < width, other=0.0)
    to_weight = tl.zeros((tall, wide), tl.float32)
    to_bias = tl.zeros((tall, wide), tl.float32)
    for tile in range(tiles):
        row = (part * tiles + tile) * tall + tl.arange(0, tall)
        here = row < rows
        there = here[:, None] & (column < width)[None, :]
        at = (client * rows + row)[:, None] * width + column[None, :]
        gradient = tl.zeros((tall, wide), tl.float32)
        if one:
            gradient += tl.load(first + at, mask=there, other=0.0).to(tl.float32)
        if other:
            gradient += tl.load(second + at, mask=there, other=0.0).to(tl.float32)
        middle = tl.load(mean + client * rows + row, mask=here, other=0.0)
        found = tl.load(scale + client * rows + row, mask=here, other=0.0)
        values = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        normed = tl.where(there, (values - middle[:, None]) * found[:, None], 0.0)
        outer = gradient * times[None, :]
        along, level = tl.sum(outer * normed, 1) / width, tl.sum(outer, 1) / width
        tl.store(to_x + at, found[:, None] * (outer - level[:, None] - normed * along[:, None]), mask=there)
        to_weight += gradient * normed
        to_bias += gradient
    place = (client * parts + part) * width + column
    tl.store(sums + place, tl.sum(to_weight, 0), mask=column < width)
    tl.store(sums + clients * parts * width + place, tl.sum(to_bias, 0), mask=column < width)


@triton.jit
def _fill(y, bias, rows, width, tall: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tall + tl.arange(0, tall)
    column = tl.program_id(2) * wide + tl.arange(0, wide)
    there = (row < rows)[:, None] & (column < width)[None, :]
    values = tl.load(bias + client * width + column, mask=column < width, other=0.0)
    at = (client * rows + row)[:, None] * width + column[None, :]
    tl.store(y + at, tl.broadcast_to(values[None, :], (tall, wide)), mask=there)


class FusedLayerNorm(torch.autograd.Function):
    """Rows brought to mean 0 and deviation 1, then scaled and moved as each client says: [clients, rows, width].

    With `half` also rounded, for the products that read them; the gradients of both are summed on the way back.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, half: bool
    ) -> tuple[Tensor, Tensor | None]:
        (clients, rows, width), x = x.shape, x.contiguous()
        weight, bias = weight.contiguous(), bias.contiguous()
        y = torch.empty_like(x, dtype=weight.dtype)
        halved = torch.empty_like(x, dtype=torch.bfloat16) if half else None
        mean, scale = x.new_empty((2, clients, rows), dtype=torch.float32)
        tall, wide = _tile(width)
        grid = (triton.cdiv(rows, tall), clients)
        with _card(x):
            _norm[grid](x, weight, bias, y, halved, mean, scale, rows, width, eps, half, tall, wide)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.set_materialize_grads(False)
        return y, halved

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        first, second = (None if g is None else g.contiguous() for g in gradients)
        x, weight, mean, scale = ctx.saved_tensors
        if first is None and second is None:
            return None, None, None, None, None
        clients, rows, width = x.shape
        tall, wide = _tile(width)
        tiles = triton.next_power_of_2(
            triton.cdiv(rows * clients, tall * _PROGRAMS)
        )  # few numbers: each is compiled for
        parts = triton.cdiv(rows, tall * tiles)
        to_x = torch.empty_like(x)
        sums = x.new_empty((2, clients, parts, width), dtype=torch.float32)
        with _card(x):
            _unnorm[(parts, clients)](
                first, second, x, mean, scale, weight, to_x, sums, rows, width,
                first is not None, second is not None, tiles, tall, wide,
            )  # fmt: skip
        to_weight, to_bias = sums.sum(2).to(weight.dtype)
        return to_x, to_weight, to_bias, None, None


def filled(bias: Tensor, rows: int) -> Tensor:
    """[clients, width] → [clients, rows, width]: every row of a client's is its bias, ready for products to be added."""
    (clients, width), bias = bias.shape, bias.contiguous()
    y = bias.new_empty((clients, rows, width))
    tall, wide = _tile(min(width, 512))
    with _card(bias):
        _fill[(triton.cdiv(rows, tall), clients, triton.cdiv(width, wide))](y, bias, rows, width, tall, wide)
    return y


def try_out(device: torch.device) -> None:
    """Compile and run everything once; what is missing for that raises an error."""
    weight = torch.ones(1, 8, device=device, requires_grad=True)
    with torch.enable_grad():
        y, rounded = FusedLayerNorm.apply(filled(weight.detach(), 2), weight, weight, 1e-5, True)  # type: ignore[no-untyped-call]
        (y.sum() + rounded.sum()).backward()


def _tile(width: int) -> tuple[int, int]:
    """How many rows, and how many numbers of each, a program holds at once."""
    wide = triton.next_power_of_2(width)
    return max(1, _TILE // wide), wide
