"""FedRep (Collins et al. 2021): a shared representation φ and a personal head hᵢ, trained one after the other.

    hᵢ ← GRD(fᵢ(h, φᵗ)) for `head_epochs`,  then  φᵢ ← GRD(fᵢ(hᵢ, φ)) for `solver.epochs`                (Algorithm 1)
    φ ← meanᵢ φᵢ, without weights; the authors' code weights by examples (`weighting: examples`)

The head is trained while φ stays fixed, and φ while the head stays fixed. `head` may name any layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.fedavg import Weighting, reply_weight
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class FedRepState:
    representation: Params


@dataclass(frozen=True)
class FedRep(Algorithm):
    solver: Solver
    head: Layers
    head_epochs: int
    weighting: Weighting
    name: str = "fedrep"
    personal: bool = True

    def init(self, start: InitialModels) -> FedRepState:
        layout = start.shared.layout
        if layout.names:
            self.head.check(layout.names, layout.roles, "algorithm.head")
        return FedRepState(start.shared.exclude_layers(self.head))

    def round(self, state: FedRepState, rnd: Round) -> Script[FedRepState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.representation))
        return FedRepState(state.representation + mean.value)

    @work(reveals="sum")
    def train(self, ctx: Context, representation: Params, client_state: Params | None) -> Work[tuple[Weighted, Params]]:
        start = self.assemble(ctx, representation, client_state)
        head_solver = replace(self.solver, epochs=self.head_epochs, steps=None)
        head = yield from ctx.fit(start, head_solver, train_only=self.head, purpose="head")
        result = yield from ctx.fit(head.params, self.solver, train_only=~self.head)
        update = result.params.restrict(representation.layout) - representation
        weight = reply_weight(self.weighting, ctx, result)
        return Weighted(update, weight), result.params.exclude(representation.layout)

    def view(self, state: FedRepState, client: ClientId) -> Params:
        return state.representation

    def assemble(self, ctx: Context, representation: Params, client_state: Params | None) -> Params:
        return ctx.initial_params.updated(client_state, representation)


def fedrep(
    solver: Solver = Solver(optimizer="sgd"),
    head: tuple[str, ...] = ("head",),
    head_epochs: int = 10,
    weighting: Weighting = "uniform",
) -> FedRep:
    """A shared representation and personal heads, trained in turn (Collins et al. 2021)."""
    return FedRep(solver, Layers.parse(*head), head_epochs, weighting)
