"""One model trained on everybody's data in one place: the upper bound, which federation is there to avoid.

A round is `solver.epochs` passes over the union. Optimiser and schedule span the whole run, as in an ordinary training.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script
from motet.learning.context import Context
from motet.learning.jobs import LRHorizon, OptimizerState
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class CentralState:
    params: Params
    optimizer_state: OptimizerState | None
    steps: int


@dataclass(frozen=True)
class Centralised:
    solver: Solver
    name: str = "centralised"
    personal: bool = False

    def init(self, start: InitialModels) -> CentralState:
        return CentralState(start.server_model, None, 0)

    def round(self, state: CentralState, rnd: Round) -> Script[CentralState]:
        server: Context = rnd.server
        union = server.participant.split("union")
        course = LRHorizon(state.steps, rnd.rounds * self.solver.num_steps(len(union)))
        fitted = yield from server.fit(
            state.params,
            self.solver,
            examples=union,
            lr_horizon=course,
            optimizer_state=state.optimizer_state,
            keep_optimizer_state=True,
        )
        return CentralState(fitted.params, fitted.optimizer_state, state.steps + fitted.steps)

    def view(self, state: CentralState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, own: None) -> Params | None:
        """Clients may have other architectures than the server; they have no use for its model."""
        return params if params.layout == ctx.model.initial_params.layout else None


def centralised(solver: Solver = Solver()) -> Centralised:
    """One model trained on the union of all clients' data; no federation."""
    return Centralised(solver)
