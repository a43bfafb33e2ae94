"""Triton kernels for the element-wise parts of packed layers: one pass over the rows where torch needs several.

Triton comes with torch for GPUs. On an H200, a step of four clients spent more time in such passes than in matrix
products. Without Triton, `packed_layers` does the same with torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WIDTH = 4096  # elements of a row that one program can hold
_TILE = 2048  # elements that one program holds
_NORM_TILE, _NORM_WARPS = 1024, 2  # in the backward pass of norms, which holds nine tiles of numbers
_PROGRAMS = 1024  # that sum gradients of parameters: a few for each multiprocessor of a large GPU
_SUM_TILE = 4096  # partial sums that one program adds
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
def _norm_backward(  # type: ignore[no-untyped-def]
    grad_y, grad_y_bf16, x, mean, rstd, weight, grad_x, grad_product, partial_sums, rows, width, weight_client,
    has_grad: tl.constexpr, has_grad_bf16: tl.constexpr, write_product: tl.constexpr, has_bias: tl.constexpr,
    tiles: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    part, parts, client = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    clients, column = tl.num_programs(1), tl.arange(0, tile_columns)
    w = tl.load(weight + client * weight_client + column, column < width, 0.0)
    weight_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    shift_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    bias_sum = tl.zeros((tile_rows, tile_columns), tl.float32)
    for tile in range(tiles):
        row = (part * tiles + tile) * tile_rows + tl.arange(0, tile_rows)
        row_mask = row < rows
        mask = row_mask[:, None] & (column < width)[None, :]
        offset = (client * rows + row)[:, None] * width + column[None, :]
        grad = tl.zeros((tile_rows, tile_columns), tl.float32)
        if has_grad:
            grad += tl.load(grad_y + offset, mask, 0.0).to(tl.float32)
        if has_grad_bf16:
            grad += tl.load(grad_y_bf16 + offset, mask, 0.0).to(tl.float32)
        row_mean = tl.load(mean + client * rows + row, row_mask, 0.0)
        row_rstd = tl.load(rstd + client * rows + row, row_mask, 0.0)
        values = tl.load(x + offset, mask, 0.0).to(tl.float32)
        normalized = tl.where(mask, (values - row_mean[:, None]) * row_rstd[:, None], 0.0)
        outer = grad * w[None, :]
        projection, level = tl.sum(outer * normalized, 1) / width, tl.sum(outer, 1) / width
        result = tl.where(mask, row_rstd[:, None] * (outer - level[:, None] - normalized * projection[:, None]), 0.0)
        tl.store(grad_x + offset, result, mask)
        if write_product:
            tl.store(grad_product + offset, result.to(grad_product.dtype.element_ty), mask)
        weight_sum += grad * normalized
        shift_sum += grad
        if has_bias:
            bias_sum += result
    out, size = (client * parts + part) * width + column, clients * parts * width
    tl.store(partial_sums + out, tl.sum(weight_sum, 0), column < width)
    tl.store(partial_sums + size + out, tl.sum(shift_sum, 0), column < width)
    if has_bias:
        tl.store(partial_sums + 2 * size + out, tl.sum(bias_sum, 0), column < width)


@triton.jit
def _broadcast_rows(y, bias, rows, width, bias_client, tile_rows: tl.constexpr, tile_columns: tl.constexpr):  # type: ignore[no-untyped-def]
    client = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    values = tl.load(bias + client * bias_client + column, mask=column < width, other=0.0)
    offset = (client * rows + row)[:, None] * width + column[None, :]
    tl.store(y + offset, tl.broadcast_to(values[None, :], (tile_rows, tile_columns)), mask=mask)


@triton.jit
def _sum_parts(  # type: ignore[no-untyped-def]
    partial_sums, first, second, third, parts, width, first_client, second_client, third_client,
    add_first: tl.constexpr, add_second: tl.constexpr, add_third: tl.constexpr,
    tile_parts: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    client, clients, index = tl.program_id(1).to(tl.int64), tl.num_programs(1), tl.program_id(2)
    column, part = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns), tl.arange(0, tile_parts)
    inside = column < width
    offset = ((index * clients + client) * parts + part[:, None]) * width + column[None, :]
    total = tl.sum(tl.load(partial_sums + offset, (part < parts)[:, None] & inside[None, :], 0.0), 0)
    if index == 0:
        store_or_add(first + client * first_client + column, total, inside, add_first)
    elif index == 1:
        store_or_add(second + client * second_client + column, total, inside, add_second)
    else:
        store_or_add(third + client * third_client + column, total, inside, add_third)


@triton.jit
def store_or_add(target, value, inside, add: tl.constexpr):  # type: ignore[no-untyped-def]
    if add:
        value += tl.load(target, inside, 0.0).to(tl.float32)
    tl.store(target, value.to(target.dtype.element_ty), inside)


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
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.targets = targets
        ctx.set_materialize_grads(False)
        return y, y_bf16

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_y, grad_y_bf16 = (None if grad is None else grad.contiguous() for grad in grads)
        x, weight, bias, mean, rstd = ctx.saved_tensors
        if grad_y is None and grad_y_bf16 is None:
            return (None,) * 6
        grad_x, _, partial_sums = norm_backward(grad_y, grad_y_bf16, x, mean, rstd, weight)
        return (
            grad_x,
            *sum_to_targets(partial_sums, (weight, bias), ctx.targets, ctx.needs_input_grad[1:3]),
            None,
            None,
            None,
        )


def norm_backward(
    grad_y: Tensor | None, grad_y_bf16: Tensor | None, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor,
    product_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradient of a norm's input [clients, rows, width], also in another type, and sums for its parameters.

    The sums [2, clients, parts, width] are those of weight and bias. With `product_dtype` there is a third one, of the
    bias that was added to the input.
    """
    (clients, rows, width), (tile_rows, tile_columns) = x.shape, tile_shape(x.shape[2], _NORM_TILE)
    tiles, parts = split_rows(rows, clients, tile_rows)
    grad_x, has_bias = torch.empty_like(x), product_dtype is not None
    writes_product = has_bias and product_dtype != x.dtype
    grad_product = torch.empty_like(x, dtype=product_dtype) if writes_product else grad_x
    partial_sums = x.new_empty((2 + has_bias, clients, parts, width), dtype=torch.float32)
    with on_device_of(x):
        _norm_backward[(parts, clients)](
            grad_y, grad_y_bf16, x, mean, rstd, weight, grad_x, grad_product, partial_sums, rows, width,
            weight.stride(0), grad_y is not None, grad_y_bf16 is not None, writes_product, has_bias,
            tiles, tile_rows, tile_columns, num_warps=_NORM_WARPS,
        )  # fmt: skip
    return grad_x, grad_product, partial_sums


def split_rows(rows: int, groups: int, tile_rows: int) -> tuple[int, int]:
    """Return the tiles of one program, a power of two because each value is compiled, and the programs of a client."""
    tiles = triton.next_power_of_2(max(1, triton.cdiv(rows * groups, tile_rows * _PROGRAMS)))
    return tiles, triton.cdiv(rows, tile_rows * tiles)


def sum_to_targets(
    partial_sums: Tensor, parameters: Sequence[Tensor], targets: Sequence[Any], needed: Sequence[bool]
) -> list[Tensor | None]:
    """Sum [parameters, clients, parts, width] over parts. Gradients without a target are returned."""
    _, clients, parts, width = partial_sums.shape
    outputs, adds, returned = list[Tensor](), list[bool](), list[Tensor | None]()
    for parameter, target, is_needed in zip(parameters, targets, needed, strict=True):
        uses_target = target is not None and is_needed
        outputs.append(
            target.view if uses_target else torch.empty_like(parameter, memory_format=torch.contiguous_format)
        )
        adds.append(uses_target and target.is_written)
        returned.append(outputs[-1] if is_needed and not uses_target else None)
        if uses_target:
            target.is_written = True
    outputs, adds = outputs + outputs[:1] * (3 - len(outputs)), adds + [False] * (3 - len(adds))
    tile_parts = triton.next_power_of_2(parts)
    tile_columns = max(16, min(triton.next_power_of_2(width), _SUM_TILE // tile_parts))
    with on_device_of(partial_sums):
        _sum_parts[(triton.cdiv(width, tile_columns), clients, len(parameters))](
            partial_sums, *outputs, parts, width, *(out.stride(0) for out in outputs), *adds, tile_parts, tile_columns
        )
    return returned


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


def tile_shape(width: int, tile: int = _TILE) -> tuple[int, int]:
    """Return the rows and columns that one program holds."""
    columns = triton.next_power_of_2(width)
    return max(1, tile // columns), columns
