"""Ditto (Li et al. 2021): FedAvg, plus a personal model per client that is kept close to the global model.

    vᵢ ← vᵢ − η(∇Fᵢ(vᵢ) + λ(vᵢ − wᵗ)),    wᵢ ← wᵢ − η∇Fᵢ(wᵢ) from wᵗ,    w ← w + Σ pᵢ(wᵢ − wᵗ) / Σ pᵢ   (Algorithm 1)

Where we differ: the authors alternate between the two models batch by batch. We train the personal model first, then
the global one, as FederatedScope does. Both see the same batches, as in the paper. With λ = 0, the personal
models are bitwise equal to isolated training, and the global model to FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.fedavg import FedAvgState, Weighting, reply_weight
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


@message
@dataclass(frozen=True, eq=False)
class DittoClientState:
    """A client's personal model, and the layers of its copy of the global model that are not shared."""

    personal: Params
    unshared: Params


@dataclass(frozen=True)
class Ditto(Algorithm):
    solver: Solver
    lam: float
    server: ServerOptimizer = SGD()
    weighting: Weighting = "examples"
    shared: Layers = Layers.all()
    name: str = "ditto"
    personal: bool = True
    models_on_clients: bool = True

    def __post_init__(self) -> None:
        _ = self.personal_solver  # raises if lam is not valid

    @property
    def personal_solver(self) -> Solver:
        return replace(self.solver, proximal_mu=self.lam)

    def init(self, start: InitialModels) -> FedAvgState:
        params = start.shared.select_layers(self.shared)
        return FedAvgState(params, self.server.init(params))

    def round(self, state: FedAvgState, rnd: Round) -> Script[FedAvgState]:
        updates = yield from total(self.train, to_all(rnd.cohort, state.params))
        return FedAvgState(*self.server.step(state.params, updates.value, state.optimizer_state))

    @work(reveals="sum")
    def train(
        self, ctx: Context, params: Params, client_state: DittoClientState | None
    ) -> Work[tuple[Weighted, DittoClientState]]:
        before = ctx.initial_params.updated(client_state.unshared if client_state else None, params)
        start = self.assemble(ctx, params, client_state)
        personal = yield from ctx.fit(start, self.personal_solver, proximal_anchor=before)
        result = yield from ctx.fit(before, self.solver)
        update = (result.params - before).restrict(params.layout)
        new_state = DittoClientState(personal=personal.params, unshared=result.params.exclude(params.layout))
        return Weighted(update, reply_weight(self.weighting, ctx, result)), new_state

    def view(self, state: FedAvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, client_state: DittoClientState | None) -> Params:
        """Return the personal model, or the global one for a client that has not trained yet."""
        return ctx.initial_params.updated(params) if client_state is None else client_state.personal


def ditto(
    solver: Solver = Solver(optimizer="sgd"),
    lam: float = 0.1,
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
) -> Ditto:
    """FedAvg, plus a personal model per client that is kept close to the global model (Li et al. 2021)."""
    return Ditto(solver, lam, server, weighting, Layers.parse(*shared))
