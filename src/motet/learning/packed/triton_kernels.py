"""Triton kernels for the element-wise parts of packed layers: one pass over the rows where torch needs several.

Triton comes with torch for GPUs. On an H200, a step of four clients spent more time in such passes than in matrix
products. Without Triton, `packed_layers` does the same with torch operations.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WIDTH = 4096  # elements of a row that one program can hold
_TILE = 2048  # elements that one program holds
_PROGRAMS = 512  # that sum weight gradients: a few for each multiprocessor of a large GPU
on_device_of: Any = torch.cuda.device_of  # Triton would use the current device instead of the tensor's


@triton.jit
def _layer_norm_forward(  # type: ignore[no-untyped-def]
    x, weight, bias, y, y_bf16, mean, rstd, rows, width, weight_client, bias_client, eps,
    write_bf16: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.arange(0, tile_columns)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    offset = (client * rows + row)[:, None] * width + column[None, :]
    values = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
    row_mean = tl.sum(values, 1) / width
    centered = tl.where(mask, values - row_mean[:, None], 0.0)
    row_rstd = 1.0 / tl.sqrt(tl.sum(centered * centered, 1) / width + eps)
    w = tl.load(weight + client * weight_client + column, mask=column < width, other=0.0)
    b = tl.load(bias + client * bias_client + column, mask=column < width, other=0.0)
    out = centered * row_rstd[:, None] * w[None, :] + b[None, :]
    tl.store(y + offset, out, mask=mask)
    if write_bf16:
        tl.store(y_bf16 + offset, out.to(tl.bfloat16), mask=mask)
    tl.store(mean + client * rows + row, row_mean, mask=row < rows)
    tl.store(rstd + client * rows + row, row_rstd, mask=row < rows)


@triton.jit
def _layer_norm_backward(  # type: ignore[no-untyped-def]
    grad_y, grad_y_bf16, x, mean, rstd, weight, grad_x, partial_sums, rows, width, weight_client,
    has_grad: tl.constexpr, has_grad_bf16: tl.constexpr,
    tiles: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    part, parts, client, clients = (
        tl.program_id(0),
        tl.num_programs(0),
        tl.program_id(1).to(tl.int64),
        tl.num_programs(1),
    )
    column = tl.arange(0, tile_columns)
    w = tl.load(weight + client * weight_client + column, mask=column < width, other=0.0)
    weight_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    bias_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    for tile in range(tiles):
        row = (part * tiles + tile) * tile_rows + tl.arange(0, tile_rows)
        row_mask = row < rows
        mask = row_mask[:, None] & (column < width)[None, :]
        offset = (client * rows + row)[:, None] * width + column[None, :]
        grad = tl.zeros((tile_rows, tile_columns), tl.float32)
        if has_grad:
            grad += tl.load(grad_y + offset, mask=mask, other=0.0).to(tl.float32)
        if has_grad_bf16:
            grad += tl.load(grad_y_bf16 + offset, mask=mask, other=0.0).to(tl.float32)
        row_mean = tl.load(mean + client * rows + row, mask=row_mask, other=0.0)
        row_rstd = tl.load(rstd + client * rows + row, mask=row_mask, other=0.0)
        values = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
        normalized = tl.where(mask, (values - row_mean[:, None]) * row_rstd[:, None], 0.0)
        outer = grad * w[None, :]
        projection, level = tl.sum(outer * normalized, 1) / width, tl.sum(outer, 1) / width
        tl.store(
            grad_x + offset, row_rstd[:, None] * (outer - level[:, None] - normalized * projection[:, None]), mask=mask
        )
        weight_sum += grad * normalized
        bias_sum += grad
    out = (client * parts + part) * width + column
    tl.store(partial_sums + out, tl.sum(weight_sum, 0), mask=column < width)
    tl.store(partial_sums + clients * parts * width + out, tl.sum(bias_sum, 0), mask=column < width)


@triton.jit
def _broadcast_rows(y, bias, rows, width, bias_client, tile_rows: tl.constexpr, tile_columns: tl.constexpr):  # type: ignore[no-untyped-def]
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    values = tl.load(bias + client * bias_client + column, mask=column < width, other=0.0)
    offset = (client * rows + row)[:, None] * width + column[None, :]
    tl.store(y + offset, tl.broadcast_to(values[None, :], (tile_rows, tile_columns)), mask=mask)


class FusedLayerNorm(torch.autograd.Function):
    """Layer normalization with weight and bias per client: x is [clients, rows, width].

    With `write_bf16` it also returns the result in bfloat16, for the matrix products that read it; the backward pass
    adds the gradients of both outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, write_bf16: bool, targets: Any = (None, None)
    ) -> tuple[Tensor, Tensor | None]:
        (clients, rows, width), x = x.shape, x.contiguous()
        weight, bias = with_dense_rows(weight), with_dense_rows(bias)
        y = torch.empty_like(x, dtype=weight.dtype)
        y_bf16 = torch.empty_like(x, dtype=torch.bfloat16) if write_bf16 else None
        mean, rstd = x.new_empty((2, clients, rows), dtype=torch.float32)
        tile_rows, tile_columns = tile_shape(width)
        grid = (triton.cdiv(rows, tile_rows), clients)
        with on_device_of(x):
            _layer_norm_forward[grid](
                x, weight, bias, y, y_bf16, mean, rstd, rows, width, weight.stride(0), bias.stride(0), eps, write_bf16,
                tile_rows, tile_columns,
            )  # fmt: skip
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.targets = targets
        ctx.set_materialize_grads(False)
        return y, y_bf16

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_y, grad_y_bf16 = (None if grad is None else grad.contiguous() for grad in grads)
        x, weight, mean, rstd = ctx.saved_tensors
        if grad_y is None and grad_y_bf16 is None:
            return (None,) * 6
        clients, rows, width = x.shape
        tile_rows, tile_columns = tile_shape(width)
        # A power of two, because Triton compiles one kernel for each value.
        tiles = triton.next_power_of_2(triton.cdiv(rows * clients, tile_rows * _PROGRAMS))
        parts = triton.cdiv(rows, tile_rows * tiles)
        grad_x = torch.empty_like(x)
        partial_sums = x.new_empty((2, clients, parts, width), dtype=torch.float32)
        with on_device_of(x):
            _layer_norm_backward[(parts, clients)](
                grad_y, grad_y_bf16, x, mean, rstd, weight, grad_x, partial_sums, rows, width, weight.stride(0),
                grad_y is not None, grad_y_bf16 is not None, tiles, tile_rows, tile_columns,
            )  # fmt: skip
        parameter_grads = list(partial_sums.sum(2).to(weight.dtype))
        for i, target in enumerate(ctx.targets):
            if target is not None and ctx.needs_input_grad[1 + i]:
                target.write(parameter_grads[i])
                parameter_grads[i] = None
        return grad_x, *parameter_grads, None, None, None


def broadcast_bias(bias: Tensor, rows: int) -> Tensor:
    """Copy [clients, width] to every row of a new [clients, rows, width], to which a product is then added."""
    (clients, width), bias = bias.shape, with_dense_rows(bias)
    y = bias.new_empty((clients, rows, width))
    tile_rows, tile_columns = tile_shape(min(width, 512))
    grid = (triton.cdiv(rows, tile_rows), clients, triton.cdiv(width, tile_columns))
    with on_device_of(bias):
        _broadcast_rows[grid](y, bias, rows, width, bias.stride(0), tile_rows, tile_columns)
    return y


def probe(device: torch.device) -> None:
    """Compile and run every kernel once. Raises whatever error that causes."""
    weight = torch.ones(1, 8, device=device, requires_grad=True)
    with torch.enable_grad():
        y, y_bf16 = FusedLayerNorm.apply(broadcast_bias(weight.detach(), 2), weight, weight, 1e-5, True)  # type: ignore[no-untyped-call]
        (y.sum() + y_bf16.sum()).backward()


def with_dense_rows(x: Tensor) -> Tensor:
    """Return [clients, width] with adjacent numbers in a row. The rows may be far apart, as in the clients' vectors."""
    return x if x.stride(1) == 1 else x.contiguous()


def tile_shape(width: int) -> tuple[int, int]:
    """Return the rows and columns that one program holds."""
    columns = triton.next_power_of_2(width)
    return max(1, _TILE // columns), columns
