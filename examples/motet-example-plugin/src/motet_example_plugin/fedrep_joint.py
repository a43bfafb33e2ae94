"""FedRep (Collins et al. 2021), but after the head both the head and the representation are trained together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver

HEAD = Layers.parse("head")


@message
@dataclass(frozen=True, eq=False)
class JointState:
    representation: Params


@dataclass(frozen=True)
class JointFedRep(Algorithm):
    solver: Solver
    head_epochs: int
    name: str = "fedrep_joint"
    personal: bool = True

    def init(self, start: InitialModels) -> JointState:
        return JointState(start.shared.exclude_layers(HEAD))

    def round(self, state: JointState, rnd: Round) -> Script[JointState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.representation))
        return JointState(state.representation + mean.value)

    @work(reveals="sum")
    def train(self, ctx: Context, representation: Params, client_state: Params | None) -> Work[tuple[Weighted, Params]]:
        start = self.assemble(ctx, representation, client_state)
        head_solver = replace(self.solver, epochs=self.head_epochs)
        head = yield from ctx.fit(start, head_solver, train_only="head", purpose="head")
        result = yield from ctx.fit(head.params, self.solver)
        update = result.params.restrict(representation.layout) - representation
        return Weighted(update, float(ctx.size)), result.params.exclude(representation.layout)

    def view(self, state: JointState, client: ClientId) -> Params:
        return state.representation

    def assemble(self, ctx: Context, representation: Params, client_state: Params | None) -> Params:
        return ctx.initial_params.updated(client_state, representation)


def fedrep_joint(solver: Solver = Solver(optimizer="sgd"), head_epochs: int = 5) -> JointFedRep:
    """A shared representation and personal heads; the head is trained first, then both together."""
    return JointFedRep(solver, head_epochs)
