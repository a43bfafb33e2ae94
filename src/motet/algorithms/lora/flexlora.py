"""FlexLoRA (Bai et al. 2024): clients train adapters of different ranks; the server averages their products.

    ΔW = Σ pᵢ Bᵢ Aᵢ = U S Vᵀ,   client i gets B = U[:, :rᵢ] S[:rᵢ] and A = Vᵀ[:rᵢ]

The decomposition is computed from the small factors, not from ΔW itself: with the Bᵢ side by side and the Aᵢ below each
other, B = Q R and Aᵀ = P T give ΔW = Q (R Tᵀ) Pᵀ. Other trained tensors (a head) are averaged.

Where we differ: all ranks have the same scaling, alpha / model.adapter.rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.algorithms.fedavg import Weighting
from motet.algorithms.lora.adapter_pairs import AdapterPair, adapter_pairs, adapter_rank, pad_rank, weighted_mean
from motet.algorithms.lora.ranked_training import (
    RankedState,
    assign_ranks,
    at_client_rank,
    at_model_rank,
    normalized_weights,
    train_at_rank,
)
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Script, gather, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@dataclass(frozen=True)
class FlexLoRA(Algorithm):
    solver: Solver
    ranks: tuple[int, ...] = ()
    weighting: Weighting = "examples"
    name: str = "flexlora"

    def init(self, start: InitialModels) -> RankedState:
        return RankedState(start.shared, assign_ranks(start, self.ranks, self.name))

    def round(self, state: RankedState, rnd: Round) -> Script[RankedState]:
        replies = yield from gather(self.train, {client: self.view(state, client) for client in rnd.cohort})
        weights, models = normalized_weights(replies.values()), [reply.value for reply in replies.values()]
        mean = weighted_mean([pad_rank(model, state.params.layout) for model in models], weights)
        tensors, rank = mean.tensors(), adapter_rank(state.params)
        for pair in adapter_pairs(mean.layout):
            tensors[pair.b], tensors[pair.a] = decompose_mean_product(models, weights, pair, rank)
        flat = torch.cat([tensors[name].reshape(-1) for name in mean.layout.names])
        return RankedState(Params(mean.layout, flat), state.ranks)

    @work(reveals="each")
    def train(self, ctx: Context, params: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        return (yield from train_at_rank(ctx, params, self.solver, self.weighting)), None

    def view(self, state: RankedState, client: ClientId) -> Params:
        return at_client_rank(state.params, state.ranks, client)

    def assemble(self, ctx: Context, params: Params, client_state: None) -> Params:
        return at_model_rank(ctx, params)

    def dummy_exchanges(self, state: RankedState, rnd: Round) -> list[DummyExchange]:
        views = [self.view(state, client) for client in rnd.cohort]
        return [DummyExchange(1, payload=view, reply=Weighted(view, 1.0)) for view in views]


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
) -> FlexLoRA:
    """Average the products of adapters of different ranks and factor the mean again (Bai et al. 2024)."""
    return FlexLoRA(solver, tuple(ranks), weighting)
