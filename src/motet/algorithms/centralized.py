"""Centralized training, the upper bound: one model trained on the union of all clients' data.

A round is `solver.epochs` passes over the union. The optimizer and the learning-rate schedule span the whole run, as
in ordinary training.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Script
from motet.learning.context import Context
from motet.learning.jobs import OptimizerState
from motet.learning.lr_schedule import LRHorizon
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class CentralizedState:
    params: Params
    optimizer_state: OptimizerState | None
    steps: int


@dataclass(frozen=True)
class Centralized(Algorithm):
    solver: Solver
    name: str = "centralized"
    personal: bool = False

    def init(self, start: InitialModels) -> CentralizedState:
        return CentralizedState(params=start.server_model, optimizer_state=None, steps=0)

    def round(self, state: CentralizedState, rnd: Round) -> Script[CentralizedState]:
        server: Context = rnd.server
        union = server.participant.split("union")
        result = yield from server.fit(
            state.params,
            self.solver,
            examples=union,
            lr_horizon=LRHorizon(state.steps, rnd.rounds * self.solver.num_steps(len(union))),
            optimizer_state=state.optimizer_state,
            keep_optimizer_state=True,
        )
        return CentralizedState(result.params, result.optimizer_state, state.steps + result.steps)

    def dummy_exchanges(self, state: CentralizedState, rnd: Round) -> list[DummyExchange]:
        return []

    def view(self, state: CentralizedState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, client_state: None) -> Params | None:
        """Return None for clients with another architecture, which cannot run the server's model."""
        return params if params.layout == ctx.model.initial_params.layout else None


def centralized(solver: Solver = Solver()) -> Centralized:
    """Train one model on the union of all clients' data, without federation."""
    return Centralized(solver)
