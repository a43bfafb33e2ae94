"""The gradients of embedding tables as one Triton kernel, which writes them where the optimizer reads them.

torch sorts the tokens of all clients together as 64-bit numbers. It fills a table with zeros, adds the sums, and copies
the table to the clients' vectors. Here each client's tokens are sorted separately, and every number of a table is written
once. Sums have a fixed order: two trainings with one seed are equal.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.triton_kernels import on_device_of, store_or_add

_TILE_READS = 8  # gradients of one token id that a program loads at once
_TILE_COLUMNS, _COLUMNS_PER_WARP = 1024, 256


@triton.jit
def _sum_reads(  # type: ignore[no-untyped-def]
    grad, order, starts, out, reads, num_embeddings, width, out_client,
    add: tl.constexpr, tile_reads: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    token_id, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * tile_columns + tl.arange(0, tile_columns)
    first = tl.load(starts + client * (num_embeddings + 1) + token_id)
    end = tl.load(starts + client * (num_embeddings + 1) + token_id + 1)
    total = tl.zeros((tile_columns,), tl.float32)
    for start in range(first, end, tile_reads):
        read = start + tl.arange(0, tile_reads)
        position = client * reads + tl.load(order + client * reads + read, read < end, 0)
        mask = (read < end)[:, None] & (column < width)[None, :]
        total += tl.sum(tl.load(grad + position[:, None] * width + column[None, :], mask, 0.0).to(tl.float32), 0)
    store_or_add(out + client * out_client + token_id.to(tl.int64) * width + column, total, column < width, add)


def sum_reads(grad: Tensor, ids: Tensor, num_embeddings: int, target: GradTarget | None = None) -> Tensor | None:
    """Sum the gradients [clients, ..., width] of each id [clients, reads].

    The sums are [clients, num_embeddings, width]. They are written to the target, or returned if there is none. Ids of
    `num_embeddings` and above are ignored.
    """
    (clients, reads), width = ids.shape, grad.shape[-1]
    sorted_ids, order = ids.int().sort(dim=1, stable=True)
    all_ids = torch.arange(num_embeddings + 1, dtype=torch.int32, device=ids.device).repeat(clients, 1)
    starts = torch.searchsorted(sorted_ids, all_ids)
    out = grad.new_empty(clients, num_embeddings, width) if target is None else target.view
    tile_columns = min(_TILE_COLUMNS, triton.next_power_of_2(width))
    with on_device_of(grad):
        _sum_reads[(num_embeddings, clients, triton.cdiv(width, tile_columns))](
            grad.contiguous(), order, starts, out, reads, num_embeddings, width, out.stride(0),
            target is not None and target.is_written, _TILE_READS, tile_columns,
            num_warps=max(1, tile_columns // _COLUMNS_PER_WARP),
        )  # fmt: skip
    if target is None:
        return out
    target.is_written = True
    return None


def probe(device: torch.device) -> None:
    """Compile and run the kernel once. Raises whatever error that causes."""
    sum_reads(torch.ones(1, 2, 8, device=device), torch.zeros(1, 2, dtype=torch.int64, device=device), 2)
