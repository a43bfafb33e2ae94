"""FLoRA (Wang et al. 2024): the clients' products are added to the frozen weights, and adapters start again.

    W ← W + scaling · Σ pᵢ Bᵢ Aᵢ,   every round starts with the random A of the initial model and B = 0

Stacking the factors gives the sum of the products exactly, also if clients have different ranks. Other trained tensors
(a head) are averaged.

Where we differ: the server sends the sum of all products as dense matrices, so that a client may miss rounds. The paper
sends the stacked factors. All ranks have the same scaling, alpha / model.adapter.rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from motet.algorithms.fedavg import Weighting
from motet.algorithms.lora.adapter_pairs import adapter_pairs, mean_product, pad_rank, weighted_mean, zero_products
from motet.algorithms.lora.ranked_training import (
    assign_ranks,
    at_client_rank,
    at_model_rank,
    normalized_weights,
    train_at_rank,
)
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.rebased import RebasedParams
from motet.core.script import ClientId, Script, gather, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class FLoRAState:
    """The start of every round, the sum of all products so far, and every client's rank."""

    params: Params
    base_update: Params | None
    ranks: dict[str, int]


@dataclass(frozen=True)
class FLoRA(Algorithm):
    solver: Solver
    ranks: tuple[int, ...] = ()
    weighting: Weighting = "examples"
    name: str = "flora"
    personal: bool = False  # clients deploy the global model, reduced to their rank

    def __post_init__(self) -> None:
        self.solver.require_new_optimizer(self.name, "starts every round with new adapters")

    def init(self, start: InitialModels) -> FLoRAState:
        return FLoRAState(start.shared, None, assign_ranks(start, self.ranks, self.name))

    def round(self, state: FLoRAState, rnd: Round) -> Script[FLoRAState]:
        replies = yield from gather(self.train, {client: self.view(state, client) for client in rnd.cohort})
        weights, models = normalized_weights(replies.values()), [reply.value for reply in replies.values()]
        pairs = adapter_pairs(state.params.layout)
        products = Params.from_tensors({pair.layer: mean_product(models, weights, pair) for pair in pairs})
        base_update = products if state.base_update is None else state.base_update + products
        mean = weighted_mean([pad_rank(model, state.params.layout) for model in models], weights)
        adapters = {name for pair in pairs for name in (pair.a, pair.b)}
        new = {name: (state.params if name in adapters else mean)[name] for name in mean.layout.names}
        params = Params(mean.layout, torch.cat([tensor.reshape(-1) for tensor in new.values()]))
        return FLoRAState(params, base_update, state.ranks)

    @work(reveals="each")
    def train(self, ctx: Context, model: RebasedParams, client_state: None) -> Work[tuple[Weighted, None]]:
        reply = yield from train_at_rank(ctx, model.params, self.solver, self.weighting, model.base_update)
        return reply, None

    def view(self, state: FLoRAState, client: ClientId) -> RebasedParams:
        return RebasedParams(at_client_rank(state.params, state.ranks, client), state.base_update)

    def assemble(self, ctx: Context, model: RebasedParams, client_state: None) -> RebasedParams:
        return RebasedParams(at_model_rank(ctx, model.params), model.base_update)

    def dummy_exchanges(self, state: FLoRAState, rnd: Round) -> list[DummyExchange]:
        base_update = zero_products(state.params.layout) if rnd.index else None  # the first round has none yet
        state = replace(state, base_update=base_update)
        views = [self.view(state, client) for client in rnd.cohort]
        return [DummyExchange(1, payload=view, reply=Weighted(view.params, 1.0)) for view in views]


def flora(solver: Solver = Solver(lr=3e-4), ranks: tuple[int, ...] = (), weighting: Weighting = "examples") -> FLoRA:
    """Add the products of the clients' adapters to the frozen weights, and start new adapters (Wang et al. 2024)."""
    return FLoRA(solver, tuple(ranks), weighting)
