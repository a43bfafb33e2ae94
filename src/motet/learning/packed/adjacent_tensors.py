"""Tensors that lie side by side in memory, such as the weights of queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def join_adjacent(tensors: Sequence[Tensor], dim: int) -> Tensor | None:
    """Concatenate tensors along an axis without a copy; None if they do not lie side by side."""
    first = tensors[0]
    step = first.shape[dim] * first.stride(dim)
    for i, tensor in enumerate(tensors):
        is_next = tensor.storage_offset() == first.storage_offset() + i * step
        is_alike = tensor.shape == first.shape and tensor.stride() == first.stride() and tensor.dtype == first.dtype
        if not (is_next and is_alike and tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()):
            return None
    shape = list(first.shape)
    shape[dim] *= len(tensors)
    return first.detach().as_strided(shape, first.stride())
