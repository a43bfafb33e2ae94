"""Triton kernels for what follows a product in an encoder layer: bias and GELU, or bias, residual and norm.

Each is one pass over the rows in both directions. The backward pass also sums the gradients of the parameters, in a
fixed order, and writes them where the optimizer reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from motet.learning.packed.triton_kernels import (
    MAX_WIDTH,
    norm_backward,
    on_device_of,
    split_rows,
    sum_to_targets,
    tile_shape,
    with_dense_rows,
)

__all__ = ["MAX_WIDTH", "AddNorm", "BiasGelu", "probe"]
_GELU_COLUMNS = 512


@triton.jit
def _add_norm_forward(  # type: ignore[no-untyped-def]
    product, bias, residual, weight, shift, total, y, y_bf16, mean, rstd, rows, width,
    bias_client, weight_client, shift_client, eps,
    write_bf16: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    row, column = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows), tl.arange(0, tile_columns)
    inside = column < width
    mask = (row < rows)[:, None] & inside[None, :]
    offset = (client * rows + row)[:, None] * width + column[None, :]
    values = tl.load(product + offset, mask, 0.0).to(tl.float32)
    values += tl.load(bias + client * bias_client + column, inside, 0.0).to(tl.float32)[None, :]
    values += tl.load(residual + offset, mask, 0.0).to(tl.float32)
    tl.store(total + offset, values, mask)
    row_mean = tl.sum(tl.where(mask, values, 0.0), 1) / width
    centered = tl.where(mask, values - row_mean[:, None], 0.0)
    row_rstd = 1.0 / tl.sqrt(tl.sum(centered * centered, 1) / width + eps)
    w = tl.load(weight + client * weight_client + column, inside, 0.0)
    b = tl.load(shift + client * shift_client + column, inside, 0.0)
    out = centered * row_rstd[:, None] * w[None, :] + b[None, :]
    tl.store(y + offset, out, mask)
    if write_bf16:
        tl.store(y_bf16 + offset, out.to(tl.bfloat16), mask)
    tl.store(mean + client * rows + row, row_mean, row < rows)
    tl.store(rstd + client * rows + row, row_rstd, row < rows)


@triton.jit
def _normal_tail(x):  # type: ignore[no-untyped-def]
    """Return exp(-x²/2) and the probability that a normal number is above |x|, by formula 7.1.26 of Abramowitz and Stegun.

    Its error is below 1e-7. With `tl.erf`, computing takes longer than reading and writing the tensors.
    """
    density = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.23164189 * tl.abs(x))
    polynomial = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    return density, polynomial * density


@triton.jit
def _bias_gelu_forward(  # type: ignore[no-untyped-def]
    product, bias, y, rows, width, bias_client, tile_rows: tl.constexpr, tile_columns: tl.constexpr
):
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    offset = (client * rows + row)[:, None] * width + column[None, :]
    x = tl.load(product + offset, mask, 0.0).to(tl.float32)
    x += tl.load(bias + client * bias_client + column, column < width, 0.0).to(tl.float32)[None, :]
    _, tail = _normal_tail(x)
    tl.store(y + offset, (x * tl.where(x < 0, tail, 1.0 - tail)).to(y.dtype.element_ty), mask)


@triton.jit
def _bias_gelu_backward(  # type: ignore[no-untyped-def]
    grad_y, product, bias, grad_product, partial_sums, rows, width, bias_client,
    tiles: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    part, parts, client = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
    b = tl.load(bias + client * bias_client + column, column < width, 0.0).to(tl.float32)
    bias_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    for tile in range(tiles):
        row = (part * tiles + tile) * tile_rows + tl.arange(0, tile_rows)
        mask = (row < rows)[:, None] & (column < width)[None, :]
        offset = (client * rows + row)[:, None] * width + column[None, :]
        x = tl.load(product + offset, mask, 0.0).to(tl.float32) + b[None, :]
        grad = tl.load(grad_y + offset, mask, 0.0).to(tl.float32)
        density, tail = _normal_tail(x)
        result = grad * (tl.where(x < 0, tail, 1.0 - tail) + x * 0.3989422804014327 * density)
        tl.store(grad_product + offset, result.to(grad_product.dtype.element_ty), mask)
        bias_sum += result
    tl.store(partial_sums + (client * parts + part) * width + column, tl.sum(bias_sum, 0), column < width)


class AddNorm(torch.autograd.Function):
    """Layer normalization of product + bias + residual, all [clients, rows, width], with parameters per client.

    It also returns the result in bfloat16 if the product is in bfloat16, for the next products.
    """

    @staticmethod
    def forward(
        ctx: Any, product: Tensor, bias: Tensor, residual: Tensor, weight: Tensor, shift: Tensor, eps: float,
        targets: Sequence[Any] = (None, None, None),
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        (clients, rows, width), product, residual = product.shape, product.contiguous(), residual.contiguous()
        bias, weight, shift = with_dense_rows(bias), with_dense_rows(weight), with_dense_rows(shift)
        y, total = torch.empty((2, *product.shape), dtype=weight.dtype, device=product.device)
        y_bf16 = torch.empty_like(product) if product.dtype == torch.bfloat16 else None
        mean, rstd = product.new_empty((2, clients, rows), dtype=torch.float32)
        tile_rows, tile_columns = tile_shape(width)
        with on_device_of(product):
            _add_norm_forward[(triton.cdiv(rows, tile_rows), clients)](
                product, bias, residual, weight, shift, total, y, y_bf16, mean, rstd, rows, width,
                bias.stride(0), weight.stride(0), shift.stride(0), eps, y_bf16 is not None, tile_rows, tile_columns,
            )  # fmt: skip
        ctx.save_for_backward(total, bias, weight, shift, mean, rstd)
        ctx.targets, ctx.product_dtype = targets, product.dtype
        ctx.set_materialize_grads(False)
        return y, y_bf16

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_y, grad_y_bf16 = (None if grad is None else grad.contiguous() for grad in grads)
        total, bias, weight, shift, mean, rstd = ctx.saved_tensors
        if grad_y is None and grad_y_bf16 is None:
            return (None,) * 7
        grad_total, grad_product, partial_sums = norm_backward(
            grad_y, grad_y_bf16, total, mean, rstd, weight, ctx.product_dtype
        )
        needed, (bias_target, *norm_targets) = ctx.needs_input_grad, ctx.targets
        grad_weight, grad_shift, grad_bias = sum_to_targets(
            partial_sums, (weight, shift, bias), (*norm_targets, bias_target), (needed[3], needed[4], needed[1])
        )
        return grad_product, grad_bias, grad_total, grad_weight, grad_shift, None, None


class BiasGelu(torch.autograd.Function):
    """GELU of product [clients, rows, width] + bias [clients, width]."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, bias: Tensor, target: Any = None) -> Tensor:
        (clients, rows, width), product, bias = product.shape, product.contiguous(), with_dense_rows(bias)
        y = torch.empty_like(product)
        tile_rows, tile_columns = tile_shape(min(width, _GELU_COLUMNS))
        with on_device_of(product):
            _bias_gelu_forward[(triton.cdiv(rows, tile_rows), clients, triton.cdiv(width, tile_columns))](
                product, bias, y, rows, width, bias.stride(0), tile_rows, tile_columns
            )
        ctx.save_for_backward(product, bias)
        ctx.target = target
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (product, bias) = grads, ctx.saved_tensors
        clients, rows, width = product.shape
        tile_rows, tile_columns = tile_shape(min(width, _GELU_COLUMNS))
        column_tiles = triton.cdiv(width, tile_columns)
        tiles, parts = split_rows(rows, clients * column_tiles, tile_rows)
        grad_product = torch.empty_like(product)
        partial_sums = product.new_empty((1, clients, parts, width), dtype=torch.float32)
        with on_device_of(product):
            _bias_gelu_backward[(parts, clients, column_tiles)](
                grad.contiguous(), product, bias, grad_product, partial_sums, rows, width, bias.stride(0),
                tiles, tile_rows, tile_columns,
            )  # fmt: skip
        (grad_bias,) = sum_to_targets(partial_sums, (bias,), (ctx.target,), (ctx.needs_input_grad[1],))
        return grad_product, grad_bias, None


def probe(device: torch.device) -> None:
    """Compile and run every kernel once. Raises whatever error that causes."""
    x = torch.ones(1, 2, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.ones(1, 16, device=device, requires_grad=True)
    with torch.enable_grad():
        y, y_bf16 = AddNorm.apply(BiasGelu.apply(x, bias), bias, x.float(), bias, bias, 1e-5)  # type: ignore[no-untyped-call]
        (y.sum() + y_bf16.sum()).backward()
