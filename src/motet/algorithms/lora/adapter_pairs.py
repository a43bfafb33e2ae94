"""The matrices of LoRA adapters in a model's parameters: an adapted layer computes W x + scaling · B A x.

A is [rank, in] and B [out, rank]. A client with a smaller rank has zeros in the other rows of A and columns of B. They
get no gradient, because each is multiplied by the other, so they stay zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.params import Layout, Params

A_LAYERS = Layers.parse("name:*.lora_A.*")
B_LAYERS = Layers.parse("name:*.lora_B.*")


class AdapterPair(NamedTuple):
    """The names of an adapted layer and of its matrices."""

    layer: str
    a: str
    b: str


def adapter_pairs(layout: Layout) -> list[AdapterPair]:
    names = [name for name in layout.names if ".lora_A." in name]
    return [AdapterPair(a.partition(".lora_A.")[0], a, a.replace(".lora_A.", ".lora_B.")) for a in names]


def require_adapters(layout: Layout, method: str) -> None:
    if not adapter_pairs(layout):
        raise ConfigError(f"{method} trains LoRA adapters, but this model has none. Write e.g. model.adapter.rank=8.")


def adapter_rank(params: Params) -> int:
    return int(params[adapter_pairs(params.layout)[0].a].shape[0])


def truncate_rank(params: Params, rank: int) -> Params:
    """Keep the first `rank` rows of every A and columns of every B. Other tensors stay whole."""
    pairs = adapter_pairs(params.layout)
    tensors = params.tensors()
    for pair in pairs:
        tensors[pair.a], tensors[pair.b] = tensors[pair.a][:rank], tensors[pair.b][:, :rank]
    return _with_tensors(params, tensors)


def pad_rank(params: Params, layout: Layout) -> Params:
    """Add zero rows to every A and zero columns to every B, up to the shapes in `layout`."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    tensors = params.tensors()
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            padded = tensor.new_zeros(shapes[name])
            padded[: tensor.shape[0], : tensor.shape[1]] = tensor
            tensors[name] = padded
    return _with_tensors(params, tensors)


def revive_ranks(params: Params, previous: Params) -> Params:
    """Give the ranks that are zero in A and B the A of `previous`: the products stay, and the ranks can be trained again."""
    tensors, previous = params.tensors(), previous.to_device_of(params)
    for pair in adapter_pairs(params.layout):
        is_zero = ~(params[pair.a].any(1) | params[pair.b].any(0)).unsqueeze(1)
        tensors[pair.a] = torch.where(is_zero, previous[pair.a], params[pair.a])
    return _with_tensors(params, tensors)


def weighted_mean(replies: Sequence[Params], weights: Sequence[float]) -> Params:
    """Return the mean of parameters with the same layout; the weights sum to 1."""
    mean = replies[0].zeros_like()
    for params, weight in zip(replies, weights, strict=True):
        mean.flat.add_(params.to_device_of(mean).flat, alpha=weight)
    return mean


def mean_product(replies: Sequence[Params], weights: Sequence[float], pair: AdapterPair) -> Tensor:
    """Return Σ pᵢ Bᵢ Aᵢ of one layer as one product: the Bᵢ side by side, the Aᵢ below each other."""
    b = torch.cat([params[pair.b] * weight for params, weight in zip(replies, weights, strict=True)], dim=1)
    return b @ torch.cat([params[pair.a] for params in replies])


def zero_products(layout: Layout) -> Params:
    """Return a zero matrix in the shape of B A for every adapted layer."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    pairs = adapter_pairs(layout)
    return Params.from_tensors({pair.layer: torch.zeros(shapes[pair.b][0], shapes[pair.a][1]) for pair in pairs})


def check_ranks(ranks: Sequence[int], largest: int, method: str) -> None:
    for rank in ranks:
        if not 1 <= rank <= largest:
            raise ConfigError(
                f"{method}: algorithm.ranks has {rank}, but the model's adapters have rank {largest}; "
                f"expected ranks from 1 to {largest}. Raise model.adapter.rank, or lower the rank."
            )


def _with_tensors(params: Params, tensors: dict[str, Tensor]) -> Params:
    layout = replace(params.layout, shapes=tuple(tuple(tensor.shape) for tensor in tensors.values()))
    return Params(layout, torch.cat([tensor.reshape(-1) for tensor in tensors.values()]))
