"""The lookup of words in embedding tables, with gradients that are the same in every run on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.kernel_modules import kernels_for

# On a GPU, torch adds the gradients of a table atomically if it has few rows and each is read often (30 times or more),
# and then two trainings with one seed differ. Such tables get their gradients from a product, which has a fixed order.
_FEW_ROWS, _READS_PER_ROW = 64, 16


class _EmbedPerClient(torch.autograd.Function):
    """Rows of each client's table [clients, num_embeddings, width]. Padding gets no gradient.

    The tables of several clients are not adjacent, so `F.embedding` would copy all of them in every step.
    """

    @staticmethod
    def forward(ctx: Any, tables: Tensor, ids: Tensor, is_padding: Tensor | None, target: GradTarget | None) -> Tensor:
        ctx.save_for_backward(ids, is_padding)
        ctx.num_embeddings, ctx.target = tables.shape[1], target
        return tables[_client_numbers(ids), ids]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None]:
        (grad,), (ids, is_padding) = grads, ctx.saved_tensors
        return sum_grads(grad, ids, ctx.num_embeddings, is_padding, ctx.target), None, None, None


def sum_grads(
    grad: Tensor, ids: Tensor, num_embeddings: int, is_padding: Tensor | None = None, target: GradTarget | None = None
) -> Tensor | None:
    """Return the gradient of tables [clients, num_embeddings, width] from the gradients of the rows that were looked up.

    `ids` are the numbers of these rows, [clients, ...]. A kernel writes the gradient to the target, if there is one.
    """
    is_read_often = num_embeddings <= _FEW_ROWS or ids.numel() >= _READS_PER_ROW * num_embeddings * len(ids)
    kernels = None if is_read_often else kernels_for(grad, "triton_embedding")
    if kernels is not None:
        ids = ids if is_padding is None else ids.masked_fill(is_padding, num_embeddings)
        sums: Tensor | None = kernels.sum_reads(grad, ids.flatten(1), num_embeddings, target)
        return sums
    if is_padding is not None:
        grad = grad.masked_fill(is_padding.unsqueeze(-1), 0)
    return (
        sum_with_product(grad, ids, num_embeddings)
        if grad.is_cuda and is_read_often
        else _sum_sorted(grad, ids, num_embeddings)
    )


def sum_with_product(grad: Tensor, ids: Tensor, num_embeddings: int) -> Tensor:
    """Multiply the gradients by one-hot vectors."""
    rows = torch.arange(num_embeddings, device=ids.device).view(1, -1, 1)
    one_hot = (ids.flatten(1).unsqueeze(1) == rows).to(grad.dtype)
    return torch.bmm(one_hot, grad.reshape(len(ids), -1, grad.shape[-1]))


def _sum_sorted(grad: Tensor, ids: Tensor, num_embeddings: int) -> Tensor:
    rows = ids + num_embeddings * _client_numbers(ids)
    flat: Tensor = torch.ops.aten.embedding_dense_backward(grad, rows, len(ids) * num_embeddings, -1, False)
    return flat.view(len(ids), num_embeddings, -1)


def _client_numbers(ids: Tensor) -> Tensor:
    return torch.arange(len(ids), device=ids.device).view(-1, *[1] * (ids.dim() - 1))


def embed_per_client(
    tables: Tensor, ids: Tensor, is_padding: Tensor | None, target: GradTarget | None = None
) -> Tensor:
    """Look up ids [clients, ...] in each client's table [clients, num_embeddings, width]. Padding gets no gradient."""
    y: Tensor = _EmbedPerClient.apply(tables, ids, is_padding, target)  # type: ignore[no-untyped-call]
    return y


def embed(table: Tensor, ids: Tensor, padding_row: int | None = None) -> Tensor:
    """Look up ids in a table that all rows share."""
    needs_grad = table.requires_grad and torch.is_grad_enabled()
    if not needs_grad or not table.is_cuda:  # the gradients of a CPU have a fixed order
        return F.embedding(ids, table, padding_row)
    is_padding = None if padding_row is None else (ids == padding_row).unsqueeze(0)
    return embed_per_client(table.unsqueeze(0), ids.unsqueeze(0), is_padding)[0]
