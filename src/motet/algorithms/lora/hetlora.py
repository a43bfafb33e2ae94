"""HetLoRA (Cho et al. 2024): clients train adapters of different ranks, which are padded with zeros and averaged.

    A ← Σ wᵢ pad(Aᵢ),   B ← Σ wᵢ pad(Bᵢ),   wᵢ = ‖Bᵢ Aᵢ‖ / Σ ‖Bⱼ Aⱼ‖,   client i gets the first rᵢ ranks

The norms are Frobenius norms over all layers. They give clients with little information in their adapters a small
weight.

Where we differ: clients keep their rank; the paper also lets them prune it. If no client of a cohort has a rank, its A
stays, so that it can be trained again; in the equation, it would be zero from then on. All ranks have the same scaling,
alpha / model.adapter.rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from motet.algorithms.lora.adapter_pairs import adapter_pairs, pad_rank, weighted_mean
from motet.algorithms.lora.ranked_training import RankedAdapters
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.learning.solver import Solver


def pool_by_norm(replies: Sequence[Weighted], shared: Params) -> Params:
    """Return the mean of the padded adapters, each weighted by the norm of its product."""
    norms = [product_norm(reply.value) for reply in replies]
    if not sum(norms) > 0:
        return shared
    padded = [pad_rank(reply.value, shared.layout) for reply in replies]
    return weighted_mean(padded, [norm / sum(norms) for norm in norms])


def product_norm(params: Params) -> float:
    """Return the Frobenius norm of B A over all layers, from ‖B A‖² = Σ (BᵀB) ∘ (A Aᵀ)."""
    pairs = adapter_pairs(params.layout)
    squares = (((params[p.b].T @ params[p.b]) * (params[p.a] @ params[p.a].T)).sum() for p in pairs)
    return math.sqrt(max(0.0, sum(float(square) for square in squares)))


def hetlora(solver: Solver = Solver(lr=3e-4), ranks: tuple[int, ...] = ()) -> RankedAdapters:
    """Average zero-padded adapters of different ranks, weighted by their norms (Cho et al. 2024)."""
    return RankedAdapters("hetlora", solver, pool_by_norm, tuple(ranks))
