"""Clients with adapters of different ranks: who has which rank, training at a rank, and rounds that pool the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from motet.algorithms.fedavg import Weighting, reply_weight
from motet.algorithms.lora.adapter_pairs import (
    adapter_rank,
    check_ranks,
    pad_rank,
    require_adapters,
    revive_ranks,
    truncate_rank,
)
from motet.core.errors import RunError
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
class RankedState:
    """Shared parameters with adapters of the largest rank, and every client's rank."""

    params: Params
    ranks: dict[str, int]


PoolAdapters = Callable[[Sequence[Weighted], Params], Params]  # (the clients' adapters, the shared ones) -> new ones


@dataclass(frozen=True)
class RankedAdapters(Algorithm):
    """Each client trains adapters of its own rank, and the server pools them into shared ones of the largest rank."""

    name: str
    solver: Solver
    pool: PoolAdapters
    ranks: tuple[int, ...] = ()
    weighting: Weighting = "examples"
    personal: bool = False  # clients deploy the global model, reduced to their rank

    def init(self, start: InitialModels) -> RankedState:
        return RankedState(start.shared, assign_ranks(start, self.ranks, self.name))

    def round(self, state: RankedState, rnd: Round) -> Script[RankedState]:
        replies = yield from gather(self.train, {client: self.view(state, client) for client in rnd.cohort})
        trained = [reply for reply in replies.values() if reply.weight > 0]
        # Without a client of high rank in the cohort, the highest ranks are zero, and would stay so forever.
        return RankedState(revive_ranks(self.pool(trained, state.params), state.params), state.ranks)

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


def assign_ranks(start: InitialModels, ranks: Sequence[int], method: str) -> dict[ClientId, int]:
    """Give the clients `ranks` in turn. Without ranks, all clients have the rank of the model."""
    require_adapters(start.shared.layout, method)
    largest = adapter_rank(start.shared)
    check_ranks(ranks, largest, method)
    return {client: ranks[i % len(ranks)] if ranks else largest for i, client in enumerate(start.clients)}


def at_client_rank(params: Params, ranks: Mapping[ClientId, int], client: ClientId) -> Params:
    """Return what a client gets of the shared parameters. A new client gets all ranks."""
    return truncate_rank(params, ranks[client]) if client in ranks else params


def at_model_rank(ctx: Context, params: Params) -> Params:
    """Return a client's parameters in the shape of its model, with zeros in the ranks that it does not have."""
    return ctx.initial_params.updated(pad_rank(params, ctx.model.layout))


def train_at_rank(
    ctx: Context, params: Params, solver: Solver, weighting: Weighting, base_update: Params | None = None
) -> Work[Weighted]:
    """Train from `params` and return the new parameters at the same rank."""
    start = RebasedParams(at_model_rank(ctx, params), base_update)
    result = yield from ctx.fit(start, solver)
    trained = Params(params.layout, truncate_rank(result.params, adapter_rank(params)).restrict(params.layout).flat)
    return Weighted(trained, reply_weight(weighting, ctx, result))


def normalized_weights(replies: Iterable[Weighted]) -> list[float]:
    weights = [reply.weight for reply in replies]
    if not sum(weights) > 0:
        raise RunError("no client of the cohort has training examples, so there is nothing to average.")
    return [weight / sum(weights) for weight in weights]
