"""SCAFFOLD (Karimireddy et al. 2020) with damped control variates: cᵢ⁺ = γ·(cᵢ − c + (x − yᵢ)/(Kη)).

With γ = 1 it is SCAFFOLD, with γ = 0 it is FedAvg without weights.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class DampedState:
    params: Params
    control: Params
    num_clients: int


@message
@dataclass(frozen=True, eq=False)
class DampedRequest:
    params: Params
    control: Params


@dataclass(frozen=True)
class DampedScaffold(Algorithm):
    solver: Solver
    damping: float
    name: str = "scaffold_damped"

    def __post_init__(self) -> None:
        self.solver.require_plain_sgd(self.name)

    def init(self, start: InitialModels) -> DampedState:
        return DampedState(start.shared, start.shared.zeros_like(), len(start.clients))

    def round(self, state: DampedState, rnd: Round) -> Script[DampedState]:
        request = DampedRequest(state.params, state.control)
        mean = yield from total(self.train, to_all(rnd.cohort, request))
        change = mean.value.unbundle()
        control = state.control + (mean.weight / state.num_clients) * change["control"]
        return DampedState(state.params + change["model"], control, state.num_clients)

    @work(reveals="sum")
    def train(
        self, ctx: Context, request: DampedRequest, client_state: Params | None
    ) -> Work[tuple[Weighted, Params | None]]:
        control = request.params.zeros_like() if client_state is None else client_state
        correction = request.control - control
        result = yield from ctx.fit(request.params, self.solver, gradient_correction=correction)
        update = result.params - request.params
        if not result.steps:  # a client without data
            return Weighted(Params.bundle(model=update, control=update), 0.0), None
        mean_gradient = update * (-1 / self.solver.total_learning_rate(result.steps))
        new_control = self.damping * (mean_gradient - correction)
        return Weighted(Params.bundle(model=update, control=new_control - control), 1.0), new_control

    def view(self, state: DampedState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view

    def dummy_exchanges(self, state: DampedState, rnd: Round) -> list[DummyExchange]:
        reply = Weighted(Params.bundle(model=state.params, control=state.control), 1.0)
        return [DummyExchange(len(rnd.cohort), DampedRequest(state.params, state.control), reply)]


def scaffold_damped(solver: Solver = Solver(optimizer="sgd"), damping: float = 0.9) -> DampedScaffold:
    """SCAFFOLD with control variates that are damped in every round."""
    return DampedScaffold(solver, damping)
