"""FedEx-LoRA (Singhal et al. 2025): FedAvg of adapters, and the error of averaging is added to the frozen weights.

    A ← Σ pᵢ Aᵢ,   B ← Σ pᵢ Bᵢ,   W ← W + scaling · (Σ pᵢ Bᵢ Aᵢ − B A)

After every round the model is exactly the mean of the clients' models.

Where we differ: the server sends the sum of all residuals as dense matrices, so that a client may miss rounds. The paper
sends the factors of the last residual, whose rank is up to the cohort times the rank of the adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.algorithms.fedavg import Weighting, reply_weight
from motet.algorithms.lora.adapter_pairs import (
    adapter_pairs,
    mean_product,
    require_adapters,
    weighted_mean,
    zero_products,
)
from motet.algorithms.lora.ranked_training import normalized_weights
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.rebased import RebasedParams
from motet.core.script import ClientId, Script, gather, to_all, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@dataclass(frozen=True)
class FedExLoRA(Algorithm):
    solver: Solver
    weighting: Weighting = "examples"
    name: str = "fedex_lora"

    def init(self, start: InitialModels) -> RebasedParams:
        require_adapters(start.shared.layout, self.name)
        return RebasedParams(start.shared)

    def round(self, state: RebasedParams, rnd: Round) -> Script[RebasedParams]:
        replies = yield from gather(self.train, to_all(rnd.cohort, state))
        weights, models = normalized_weights(replies.values()), [reply.value for reply in replies.values()]
        mean = weighted_mean(models, weights)
        residuals = Params.from_tensors(
            {
                pair.layer: mean_product(models, weights, pair) - mean[pair.b] @ mean[pair.a]
                for pair in adapter_pairs(mean.layout)
            }
        )
        return RebasedParams(mean, residuals if state.base_update is None else state.base_update + residuals)

    @work(reveals="each")
    def train(self, ctx: Context, model: RebasedParams, client_state: None) -> Work[tuple[Weighted, None]]:
        result = yield from ctx.fit(self.assemble(ctx, model, client_state), self.solver)
        return Weighted(result.params.restrict(model.params.layout), reply_weight(self.weighting, ctx, result)), None

    def view(self, state: RebasedParams, client: ClientId) -> RebasedParams:
        return state

    def assemble(self, ctx: Context, model: RebasedParams, client_state: None) -> RebasedParams:
        return RebasedParams(ctx.initial_params.updated(model.params), model.base_update)

    def dummy_exchanges(self, state: RebasedParams, rnd: Round) -> list[DummyExchange]:
        base_update = zero_products(state.params.layout) if rnd.index else None  # the first round has none yet
        payload = RebasedParams(state.params, base_update)
        return [DummyExchange(len(rnd.cohort), payload=payload, reply=Weighted(state.params, 1.0))]


def fedex_lora(solver: Solver = Solver(lr=3e-4), weighting: Weighting = "examples") -> FedExLoRA:
    """FedAvg of adapters; the error of averaging is added to the frozen weights (Singhal et al. 2025)."""
    return FedExLoRA(solver, weighting)
