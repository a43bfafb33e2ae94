"""FedNova (Wang et al. 2020): average normalized updates, so that clients with more local steps do not bias the model.

    dᵢ = (x − yᵢ)/(η·τᵢ),    x ← x − τ_eff·Σ pᵢ·η·dᵢ,    τ_eff = Σ pᵢ·τᵢ,    pᵢ = nᵢ/n     (their equation 6, plain SGD)

τᵢ is the number of local steps. If the learning rate varies, it is the sum of the rates in units of `solver.lr`.
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

STEPS_UNIT = 1024.0  # steps are sent in this unit, because numbers in secure sums are small (secure.range)


@message
@dataclass(frozen=True, eq=False)
class FedNovaState:
    params: Params


@dataclass(frozen=True)
class FedNova(Algorithm):
    solver: Solver
    name: str = "fednova"

    def __post_init__(self) -> None:
        self.solver.require_plain_sgd(self.name)

    def init(self, start: InitialModels) -> FedNovaState:
        return FedNovaState(start.shared)

    def round(self, state: FedNovaState, rnd: Round) -> Script[FedNovaState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        parts = mean.value.unbundle()
        effective_steps = STEPS_UNIT * float(parts["steps"]["steps"])
        return FedNovaState(state.params + effective_steps * parts["normalized"])

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        require_whole_model(self.name, ctx, params)
        result = yield from ctx.fit(params, self.solver)
        steps = self.solver.total_learning_rate(result.steps) / self.solver.learning_rate
        normalized = (1 / steps if steps else 0.0) * (result.params - params)
        return Weighted(_bundle(normalized, steps), float(ctx.size) if steps else 0.0), None

    def view(self, state: FedNovaState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: None) -> Params:
        return view

    def dummy_exchanges(self, state: FedNovaState, rnd: Round) -> list[DummyExchange]:
        return [DummyExchange(len(rnd.cohort), state.params, Weighted(_bundle(state.params, 1.0), 1.0))]


def _bundle(normalized: Params, steps: float) -> Params:
    return Params.bundle(normalized=normalized, steps=Params.from_scalars(steps=steps / STEPS_UNIT))


def fednova(solver: Solver = Solver(optimizer="sgd")) -> FedNova:
    """FedAvg of updates that are normalized by the number of local steps (Wang et al. 2020)."""
    return FedNova(solver)
