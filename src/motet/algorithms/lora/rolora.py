"""RoLoRA (Chen et al. 2024): train B in one round and A in the next, and average what was trained.

    even rounds: B ← Σ pᵢ Bᵢ with A fixed,   odd rounds: A ← Σ pᵢ Aᵢ with B fixed

Both averages are exact, and unlike FFA-LoRA the method also learns A. B comes first, because it starts at zero and A
would get no gradient. A new head, if the task has one, is trained in every round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.fedavg import Weighting, reply_weight
from motet.algorithms.lora.adapter_pairs import A_LAYERS, B_LAYERS, require_adapters
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class RoLoRAState:
    """The shared parameters, and the number of rounds that trained them."""

    params: Params
    rounds: int


@dataclass(frozen=True)
class RoLoRA(Algorithm):
    solver: Solver
    weighting: Weighting = "examples"
    name: str = "rolora"

    def init(self, start: InitialModels) -> RoLoRAState:
        require_adapters(start.shared.layout, self.name)
        return RoLoRAState(start.shared, 0)

    def round(self, state: RoLoRAState, rnd: Round) -> Script[RoLoRAState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state))
        trained = state.params.restrict(mean.value.layout) + mean.value
        return RoLoRAState(state.params.updated(trained), state.rounds + 1)

    @work(reveals="sum")
    def train(self, ctx: Context, state: RoLoRAState, client_state: None) -> Work[tuple[Weighted, None]]:
        start = ctx.initial_params.updated(state.params)
        result = yield from ctx.fit(start, self.solver, train_only=trained_layers(state))
        shared = state.params.layout.select_layers(trained_layers(state))
        update = result.params.restrict(shared) - start.restrict(shared)
        return Weighted(update, reply_weight(self.weighting, ctx, result)), None

    def view(self, state: RoLoRAState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, client_state: None) -> Params:
        return ctx.initial_params.updated(params)

    def dummy_exchanges(self, state: RoLoRAState, rnd: Round) -> list[DummyExchange]:
        trained = trained_layers(replace(state, rounds=rnd.index))
        reply = Weighted(state.params.select_layers(trained), 1.0)
        return [DummyExchange(len(rnd.cohort), payload=state, reply=reply)]


def trained_layers(state: RoLoRAState) -> Layers:
    return ~A_LAYERS if state.rounds % 2 == 0 else ~B_LAYERS


def rolora(solver: Solver = Solver(lr=3e-4), weighting: Weighting = "examples") -> RoLoRA:
    """Train and average the B and the A of LoRA adapters in turn (Chen et al. 2024)."""
    return RoLoRA(solver, weighting)
