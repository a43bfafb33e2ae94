"""FlexLoRA (Bai et al. 2024): clients train adapters of different ranks; the server averages their products.

    ΔW = Σ pᵢ Bᵢ Aᵢ = U S Vᵀ,   client i gets B = U[:, :rᵢ] S[:rᵢ] and A = Vᵀ[:rᵢ]

The decomposition is computed from the small factors, not from ΔW itself: with the Bᵢ side by side and the Aᵢ below each
other, B = Q R and Aᵀ = P T give ΔW = Q (R Tᵀ) Pᵀ. Other trained tensors (a head) are averaged.

Where we differ: all ranks have the same scaling, alpha / model.adapter.rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from motet.algorithms.fedavg import Weighting
from motet.algorithms.lora.adapter_pairs import AdapterPair, adapter_pairs, adapter_rank, pad_rank, weighted_mean
from motet.algorithms.lora.ranked_training import RankedAdapters, normalized_weights
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.learning.solver import Solver


def pool_products(replies: Sequence[Weighted], shared: Params) -> Params:
    """Return the factors of the mean product, and the means of all other tensors."""
    weights, models = normalized_weights(replies), [reply.value for reply in replies]
    mean = weighted_mean([pad_rank(model, shared.layout) for model in models], weights)
    tensors, rank = mean.tensors(), adapter_rank(shared)
    for pair in adapter_pairs(mean.layout):
        tensors[pair.b], tensors[pair.a] = decompose_mean_product(models, weights, pair, rank)
    return Params(mean.layout, torch.cat([tensors[name].reshape(-1) for name in mean.layout.names]))


def decompose_mean_product(
    models: Sequence[Params], weights: Sequence[float], pair: AdapterPair, rank: int
) -> tuple[Tensor, Tensor]:
    """Return B and A of the best approximation of Σ pᵢ Bᵢ Aᵢ with this rank."""
    b = torch.cat([model[pair.b] * weight for model, weight in zip(models, weights, strict=True)], dim=1)
    a = torch.cat([model[pair.a] for model in models])
    q, r = torch.linalg.qr(b.double())
    p, t = torch.linalg.qr(a.double().T)
    u, s, vt = torch.linalg.svd(r @ t.T)
    left, right = q @ (u * s)[:, :rank], vt[:rank] @ p.T
    new_b, new_a = b.new_zeros(len(b), rank), a.new_zeros(rank, a.shape[1])
    new_b[:, : left.shape[1]], new_a[: len(right)] = left.to(b.dtype), right.to(a.dtype)
    return new_b, new_a


def flexlora(
    solver: Solver = Solver(lr=3e-4), ranks: tuple[int, ...] = (), weighting: Weighting = "examples"
) -> RankedAdapters:
    """Average the products of adapters of different ranks and factor the mean again (Bai et al. 2024)."""
    return RankedAdapters("flexlora", solver, pool_products, tuple(ranks), weighting)
