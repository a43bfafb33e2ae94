"""SCAFFOLD (Karimireddy et al. 2020): FedAvg with control variates, which correct the clients' drift.

    y ← y − η(gᵢ(y) − cᵢ + c),  K steps from x                                                       (their equation 3)
    cᵢ⁺ = cᵢ − c + (x − yᵢ)/(Kη)                                                              (equation 4, option II)
    x ← x + ηg·meanᵢ(yᵢ − x),    c ← c + |S|/N·meanᵢ(cᵢ⁺ − cᵢ)                                           (equation 5)

The means are without weights. If the learning rate varies, Kη is the sum of the rates.

Where we differ: gradients are clipped, after the correction, unless `solver.clip` is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.algorithms.whole_model import require_whole_model
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
class ScaffoldState:
    """The global model x, the server's control variate c, and the number N of all clients."""

    params: Params
    control: Params
    num_clients: int


@message
@dataclass(frozen=True, eq=False)
class ScaffoldRequest:
    params: Params
    control: Params


@dataclass(frozen=True)
class Scaffold(Algorithm):
    solver: Solver
    server_lr: float = 1.0
    name: str = "scaffold"

    def __post_init__(self) -> None:
        self.solver.require_plain_sgd(self.name)

    def init(self, start: InitialModels) -> ScaffoldState:
        return ScaffoldState(start.shared, start.shared.zeros_like(), len(start.clients))

    def round(self, state: ScaffoldState, rnd: Round) -> Script[ScaffoldState]:
        request = ScaffoldRequest(state.params, state.control)
        mean = yield from total(self.train, to_all(rnd.cohort, request))
        change = mean.value.unbundle()
        share = mean.weight / state.num_clients  # |S|/N: every client has weight 1
        return ScaffoldState(
            params=state.params + self.server_lr * change["model"],
            control=state.control + share * change["control"],
            num_clients=state.num_clients,
        )

    @work(reveals="sum")
    def train(
        self, ctx: Context, request: ScaffoldRequest, client_state: Params | None
    ) -> Work[tuple[Weighted, Params | None]]:
        require_whole_model(self.name, ctx, request.params)
        control = request.params.zeros_like() if client_state is None else client_state
        correction = request.control - control
        result = yield from ctx.fit(request.params, self.solver, gradient_correction=correction)
        update = result.params - request.params
        if not result.steps:  # a client without data
            return Weighted(Params.bundle(model=update, control=update), 0.0), None
        mean_gradient = update * (-1 / self.solver.total_learning_rate(result.steps))
        new_control = mean_gradient - correction
        return Weighted(Params.bundle(model=update, control=new_control - control), 1.0), new_control

    def view(self, state: ScaffoldState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view

    def dummy_exchanges(self, state: ScaffoldState, rnd: Round) -> list[DummyExchange]:
        reply = Weighted(Params.bundle(model=state.params, control=state.control), 1.0)
        return [DummyExchange(len(rnd.cohort), ScaffoldRequest(state.params, state.control), reply)]


def scaffold(solver: Solver = Solver(optimizer="sgd"), server_lr: float = 1.0) -> Scaffold:
    """FedAvg with control variates that correct client drift (Karimireddy et al. 2020)."""
    return Scaffold(solver, server_lr)
