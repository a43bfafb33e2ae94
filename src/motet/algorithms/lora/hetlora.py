"""HetLoRA (Cho et al. 2024): clients train adapters of different ranks, which are padded with zeros and averaged.

    A ← Σ wᵢ pad(Aᵢ),   B ← Σ wᵢ pad(Bᵢ),   wᵢ = ‖Bᵢ Aᵢ‖ / Σ ‖Bⱼ Aⱼ‖,   client i gets the first rᵢ ranks

The norms are Frobenius norms over all layers. They give clients with little information in their adapters a small
weight.

Where we differ: clients keep their rank; the paper also lets them prune it. All ranks have the same scaling,
alpha / model.adapter.rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.algorithms.lora.adapter_pairs import adapter_pairs, pad_rank, weighted_mean
from motet.algorithms.lora.ranked_training import (
    RankedState,
    assign_ranks,
    at_client_rank,
    at_model_rank,
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
class HetLoRA(Algorithm):
    solver: Solver
    ranks: tuple[int, ...] = ()
    name: str = "hetlora"

    def init(self, start: InitialModels) -> RankedState:
        return RankedState(start.shared, assign_ranks(start, self.ranks, self.name))

    def round(self, state: RankedState, rnd: Round) -> Script[RankedState]:
        replies = yield from gather(self.train, {client: self.view(state, client) for client in rnd.cohort})
        trained = [reply.value for reply in replies.values() if reply.weight > 0]
        norms = [product_norm(params) for params in trained]
        if not sum(norms) > 0:
            return state
        padded = [pad_rank(params, state.params.layout) for params in trained]
        return RankedState(weighted_mean(padded, [norm / sum(norms) for norm in norms]), state.ranks)

    @work(reveals="each")
    def train(self, ctx: Context, params: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        return (yield from train_at_rank(ctx, params, self.solver, "examples")), None

    def view(self, state: RankedState, client: ClientId) -> Params:
        return at_client_rank(state.params, state.ranks, client)

    def assemble(self, ctx: Context, params: Params, client_state: None) -> Params:
        return at_model_rank(ctx, params)

    def dummy_exchanges(self, state: RankedState, rnd: Round) -> list[DummyExchange]:
        views = [self.view(state, client) for client in rnd.cohort]
        return [DummyExchange(1, payload=view, reply=Weighted(view, 1.0)) for view in views]


def product_norm(params: Params) -> float:
    """Return the Frobenius norm of B A over all layers, from ‖B A‖² = Σ (BᵀB) ∘ (A Aᵀ)."""
    pairs = adapter_pairs(params.layout)
    squares = (((params[p.b].T @ params[p.b]) * (params[p.a] @ params[p.a].T)).sum() for p in pairs)
    return math.sqrt(max(0.0, sum(float(square) for square in squares)))


def hetlora(solver: Solver = Solver(lr=3e-4), ranks: tuple[int, ...] = ()) -> HetLoRA:
    """Average zero-padded adapters of different ranks, weighted by their norms (Cho et al. 2024)."""
    return HetLoRA(solver, tuple(ranks))
