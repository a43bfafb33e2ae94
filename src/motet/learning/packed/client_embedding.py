"""The lookup of words in one embedding table per client."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _EmbedPerClient(torch.autograd.Function):
    """Rows of each client's table [clients, words, width]. Padding gets no gradient.

    The tables of several clients are not adjacent, so `F.embedding` would copy all of them in every step.
    """

    @staticmethod
    def forward(ctx: Any, tables: Tensor, ids: Tensor, is_padding: Tensor | None) -> Tensor:
        client = torch.arange(len(tables), device=ids.device).view(-1, *[1] * (ids.dim() - 1))
        ctx.save_for_backward(ids + client * tables.shape[1], is_padding)
        ctx.table_shape = tables.shape
        return tables[client, ids]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,), (rows, is_padding), (clients, words, width) = grads, ctx.saved_tensors, ctx.table_shape
        if is_padding is not None:
            grad = grad.masked_fill(is_padding.unsqueeze(-1), 0)
        flat: Tensor = torch.ops.aten.embedding_dense_backward(grad, rows, clients * words, -1, False)
        return flat.view(clients, words, width), None, None


def embed_per_client(tables: Tensor, ids: Tensor, is_padding: Tensor | None) -> Tensor:
    """Look up ids [clients, ...] in each client's table [clients, words, width]. Padding gets no gradient."""
    y: Tensor = _EmbedPerClient.apply(tables, ids, is_padding)  # type: ignore[no-untyped-call]
    return y
