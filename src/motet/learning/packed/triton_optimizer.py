"""The optimizer step of all clients as one pass over their vectors.

torch's optimizers read float32 gradients and write float32 weights. Gradients in bfloat16 are then converted first, scaled
by another pass for clipping, and the new weights are rounded by a third. Here one pass reads a gradient in the type that
the matrix product wrote, and also writes the rounded weight: 28 bytes per weight instead of 54.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from motet.learning.packed.triton_kernels import on_device_of

BETAS, EPSILON = (0.9, 0.999), 1e-8  # the defaults of torch's AdamW
BLOCK = 2048  # numbers of one client that a program updates
_SHIFT_STEP = tl.constexpr(64)  # numbers by which the places in bfloat16 are shifted, so that accesses are wide
_FLOAT32, _BF16 = tl.constexpr(0), tl.constexpr(1)  # kinds of blocks; 2: mixed


@triton.jit
def _load_grads(grads, bf16_grads, positions, kinds, block, row, index, inside, has_bf16: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load gradients from one of two tables. Whole blocks of one type are loaded in wide accesses."""
    if has_bf16:
        kind = tl.load(kinds + 2 * block)
        if kind == _BF16:
            start = row + tl.load(kinds + 2 * block + 1) * _SHIFT_STEP
            g = tl.load(bf16_grads + start + index, inside, 0.0).to(tl.float32)
        elif kind == _FLOAT32:
            g = tl.load(grads + row + index, inside, 0.0)
        else:
            position = tl.load(positions + index, inside, -1)
            from_bf16 = tl.load(bf16_grads + row + position, position >= 0, 0.0).to(tl.float32)
            g = tl.where(position >= 0, from_bf16, tl.load(grads + row + index, inside & (position < 0), 0.0))
    else:
        g = tl.load(grads + row + index, inside, 0.0)
    return g


@triton.jit
def _store_rounded(bf16_weights, rounded, positions, kinds, block, row, index, inside):  # type: ignore[no-untyped-def]
    kind = tl.load(kinds + 2 * block)
    if kind == _BF16:
        tl.store(bf16_weights + row + tl.load(kinds + 2 * block + 1) * _SHIFT_STEP + index, rounded, inside)
    elif kind != _FLOAT32:
        position = tl.load(positions + index, inside, -1)
        tl.store(bf16_weights + row + position, rounded, position >= 0)


@triton.jit
def _round_weights(weights, bf16_weights, positions, kinds, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    client, part = tl.program_id(0), tl.program_id(1)
    index, row = part * block + tl.arange(0, block), client.to(tl.int64) * size
    rounded = tl.load(weights + row + index, index < size, 0.0).to(tl.bfloat16)
    _store_rounded(bf16_weights, rounded, positions, kinds, part, row, index, index < size)


@triton.jit
def _sum_squares(  # type: ignore[no-untyped-def]
    grads, bf16_grads, positions, kinds, partial_sums, size, has_bf16: tl.constexpr, block: tl.constexpr
):
    client, part = tl.program_id(0), tl.program_id(1)
    index = part * block + tl.arange(0, block)
    row = client.to(tl.int64) * size
    g = _load_grads(grads, bf16_grads, positions, kinds, part, row, index, index < size, has_bf16)
    tl.store(partial_sums + client * tl.num_programs(1) + part, tl.sum(g * g, 0))


@triton.jit
def _optimizer_step(  # type: ignore[no-untyped-def]
    weights, bf16_weights, grads, bf16_grads, positions, kinds, first, second, rates, scales, steps, last_steps,
    corrections, size, beta1: tl.constexpr, beta2: tl.constexpr, epsilon: tl.constexpr,
    is_adam: tl.constexpr, has_scale: tl.constexpr, has_bf16: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    # No argument may be called `params`: Triton's launcher has a variable of that name.
    client, part = tl.program_id(0), tl.program_id(1)
    index = part * block + tl.arange(0, block)
    inside, row = index < size, client.to(tl.int64) * size
    p = tl.load(weights + row + index, inside, 0.0)
    g = _load_grads(grads, bf16_grads, positions, kinds, part, row, index, inside, has_bf16)
    if has_scale:
        g = g * tl.load(scales + client)
    rate = tl.load(rates + client)
    if is_adam:
        m, v = (1.0 - beta1) * g, (1.0 - beta2) * g * g
        step, last = tl.load(steps + client), tl.load(last_steps + client)
        if (step > 1) & (step <= last):  # 0 before the first step; after the last one, a client waits with a rate of 0
            m += beta1 * tl.load(first + row + index, inside, 0.0)
            v += beta2 * tl.load(second + row + index, inside, 0.0)
        if step < last:
            tl.store(first + row + index, m, inside)
            tl.store(second + row + index, v, inside)
        step_size = rate / tl.load(corrections + 2 * client)
        p -= step_size * m / (tl.sqrt(v) / tl.load(corrections + 2 * client + 1) + epsilon)
    else:
        p -= rate * g
    tl.store(weights + row + index, p, inside)
    if has_bf16:
        _store_rounded(bf16_weights, p.to(tl.bfloat16), positions, kinds, part, row, index, inside)


def block_kinds(positions: Tensor) -> Tensor:
    """Return for each block whether all its gradients are in bfloat16 (1), none (0) or some (2), and by how much they shift.

    The shift is that of their `positions` [size] from their own, in steps. If it is not the same for all, they are mixed.
    """
    size, step = len(positions), _SHIFT_STEP.value
    shifts = torch.where(positions >= 0, positions - torch.arange(size, device=positions.device), 2**30 + 1)
    shifts = torch.nn.functional.pad(shifts, (0, -size % BLOCK), value=int(shifts[-1])).view(-1, BLOCK)
    smallest, largest = shifts.amin(1), shifts.amax(1)
    kinds = torch.where((smallest == largest) & (smallest % step == 0), 1, torch.where(smallest > 2**30, 0, 2))
    return torch.stack([kinds, smallest.div(step, rounding_mode="floor")], 1).int()


def round_weights(params: Tensor, bf16_params: Tensor, positions: Tensor, kinds: Tensor) -> None:
    """Write the weights to their places in `bf16_params`."""
    clients, size = params.shape
    with on_device_of(params):
        _round_weights[(clients, triton.cdiv(size, BLOCK))](params, bf16_params, positions, kinds, size, BLOCK)


def grad_norms(grads: Tensor, bf16_grads: Tensor | None, positions: Tensor | None, kinds: Tensor | None) -> Tensor:
    """Return the norm of each client's gradient, [clients, 1]. Sums have a fixed order."""
    clients, size = grads.shape
    parts = triton.cdiv(size, BLOCK)
    partial_sums = grads.new_empty(clients, parts)
    with on_device_of(grads):
        _sum_squares[(clients, parts)](
            grads, bf16_grads, positions, kinds, partial_sums, size, bf16_grads is not None, BLOCK
        )
    return partial_sums.sum(1, keepdim=True).sqrt_()


def optimizer_step(
    params: Tensor,
    grads: Tensor,
    rates: Tensor,
    *,
    moments: tuple[Tensor, Tensor] | None = None,
    steps: Tensor | None = None,
    last_steps: Tensor | None = None,
    scales: Tensor | None = None,
    bf16_params: Tensor | None = None,
    bf16_grads: Tensor | None = None,
    positions: Tensor | None = None,
    kinds: Tensor | None = None,
) -> None:
    """Update params [clients, size] with Adam if there are moments, else with SGD.

    `rates` and `scales` (of the gradient) are one number per client; `steps` are the steps that Adam has done, with this
    one. The moments are not read in the first step, and not written in `last_steps`. `positions` [size] are the places of
    numbers in `bf16_grads` and `bf16_params`, where their gradients are read and the rounded weights are written; -1 for a
    number with a gradient in `grads`. `kinds` are the `block_kinds`.
    """
    clients, size = params.shape
    corrections = None if moments is None or steps is None else _bias_corrections(steps)
    if last_steps is None and steps is not None:
        last_steps = torch.full_like(steps, torch.inf)
    first, second = moments or (None, None)
    with on_device_of(params):
        _optimizer_step[(clients, triton.cdiv(size, BLOCK))](
            params, bf16_params, grads, bf16_grads, positions, kinds, first, second, rates, scales, steps, last_steps,
            corrections, size, *BETAS, EPSILON, moments is not None, scales is not None, bf16_grads is not None, BLOCK,
        )  # fmt: skip


def _bias_corrections(steps: Tensor) -> Tensor:
    """Return 1 - β₁ᵗ and √(1 - β₂ᵗ) for each client, [clients, 2].

    They are computed in float64, because the second is small in the beginning.
    """
    t = steps.double()
    return torch.stack([1 - BETAS[0] ** t, (1 - BETAS[1] ** t).sqrt()], 1).float()


def probe(device: torch.device) -> None:
    """Compile and run the kernels once. Raises whatever error that causes."""
    (params, grads), moments = torch.ones(2, 1, 8, device=device), torch.zeros(2, 1, 8, device=device)
    rates, positions = torch.ones(1, device=device), torch.arange(8, dtype=torch.int32, device=device)
    bf16_params, bf16_grads, kinds = params.bfloat16(), grads.bfloat16(), block_kinds(positions)
    optimizer_step(
        params, grads, rates, moments=(moments[0], moments[1]), steps=rates,
        scales=grad_norms(grads, bf16_grads, positions, kinds), bf16_params=bf16_params, bf16_grads=bf16_grads,
        positions=positions, kinds=kinds,
    )  # fmt: skip
    optimizer_step(params, grads, rates)
    round_weights(params, bf16_params, positions, kinds)
