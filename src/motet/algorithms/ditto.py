"""Ditto (Li et al. 2021): FedAvg, and beside it a model of one's own that is held near the common one.

    vᵢ ← vᵢ − η(∇Fᵢ(vᵢ) + λ(vᵢ − wᵗ)),    wᵢ ← wᵢ − η∇Fᵢ(wᵢ) from wᵗ,    w ← w + Σ pᵢ(wᵢ − wᵗ) / Σ pᵢ        (Algorithm 1)

Twofold steps come first, as in FederatedScope; the authors interleave them batch by batch, on the same batches. Here too both
trainings see the same batches, so λ = 0 leaves an isolated model beside FedAvg's, each to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.fedavg import AvgState, Weighting, weight_of
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer


@message
@dataclass(frozen=True, eq=False)
class Twofold:
    """A client's own model, and what of the common one is this client's alone: the head of its task, where tasks differ."""

    mine: Params
    rest: Params


@dataclass(frozen=True)
class Ditto:
    solver: Solver
    lam: float
    server: ServerOptimizer = Apply()
    weighting: Weighting = "examples"
    shared: Layers = Layers.all()
    name: str = "ditto"
    personal: bool = True

    def __post_init__(self) -> None:
        replace(self.solver, proximal_mu=self.lam)  # says what cannot be

    def init(self, start: InitialModels) -> AvgState:
        params = start.shared.select_layers(self.shared)
        return AvgState(params, self.server.init(params))

    def round(self, state: AvgState, rnd: Round) -> Script[AvgState]:
        updates = yield from total(self.train, to_all(rnd.cohort, state.params))
        return AvgState(*self.server.step(state.params, updates.value, state.optimizer))

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, own: Twofold | None) -> Work[tuple[Weighted, Twofold]]:
        held = replace(self.solver, proximal_mu=self.lam)
        before = ctx.initial_params.updated(own.rest if own else None, params)
        mine = yield from ctx.fit(self.assemble(ctx, params, own), held, proximal_anchor=before)
        ours = yield from ctx.fit(before, self.solver)
        update = (ours.params - before).restrict(params.layout)
        kept = Twofold(mine.params, ours.params.exclude(params.layout))
        return Weighted(update, weight_of(self.weighting, ctx, ours)), kept

    def view(self, state: AvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, own: Twofold | None) -> Params:
        """One's own model; the common one for a client that has none yet."""
        return ctx.initial_params.updated(params) if own is None else own.mine


def ditto(
    solver: Solver = Solver(optimizer="sgd"),
    lam: float = 0.1,
    server: ServerOptimizer = Apply(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
) -> Ditto:
    """FedAvg, and beside it each client's own model held near the common one (Li et al. 2021)."""
    return Ditto(solver, lam, server, weighting, Layers.parse(*shared))
