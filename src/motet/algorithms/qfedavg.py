"""q-FedAvg (Li et al. 2020, "Fair Resource Allocation"): clients with a higher loss count more.

    Δwₖ = L(w − w̄ₖ),    Δₖ = Fₖ^q·Δwₖ,    hₖ = q·Fₖ^(q−1)·‖Δwₖ‖² + L·Fₖ^q,    w ← w − ΣΔₖ/Σhₖ            (Algorithm 2)

Fₖ is the client's training loss before it trains, and L = 1/η estimates the Lipschitz constant of the gradient. q = 0 is
FedAvg without weights. Δₖ and hₖ are sent divided by L, which leaves the quotient as it is and keeps them near 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.algorithms.whole_model import require_whole_model
from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver

SMALLEST_LOSS = 1e-10  # as in the authors' code: F^(q−1) is infinite for a loss of 0 and q < 1


@message
@dataclass(frozen=True, eq=False)
class QFedAvgState:
    params: Params


@dataclass(frozen=True)
class QFedAvg(Algorithm):
    solver: Solver
    q: float
    name: str = "qfedavg"

    def __post_init__(self) -> None:
        self.solver.require_plain_sgd(self.name)
        if not self.q >= 0:
            raise ConfigError(f"qfedavg: q is {self.q:g}; it must be >= 0. Write e.g. algorithm.q=1.")

    def init(self, start: InitialModels) -> QFedAvgState:
        return QFedAvgState(start.shared)

    def round(self, state: QFedAvgState, rnd: Round) -> Script[QFedAvgState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        parts = mean.value.unbundle()
        # h is 0 if all losses are so small that their powers are 0. Then the update is 0, too.
        h = float(parts["scale"]["h"])
        return QFedAvgState(state.params + (1 / h if h else 0.0) * parts["update"])

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        require_whole_model(self.name, ctx, params)
        if not len(ctx.participant.split("train")):
            return Weighted(_bundle(params.zeros_like(), 0.0), 0.0), None
        loss = (yield from ctx.evaluate(params, "train")).scores["loss"] + SMALLEST_LOSS
        result = yield from ctx.fit(params, self.solver)
        update = result.params - params
        lipschitz = 1 / self.solver.learning_rate
        h = self.q * loss ** (self.q - 1) * lipschitz * update.norm() ** 2 + loss**self.q
        return Weighted(_bundle(loss**self.q * update, h), 1.0), None

    def view(self, state: QFedAvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: None) -> Params:
        return view

    def dummy_exchanges(self, state: QFedAvgState, rnd: Round) -> list[DummyExchange]:
        return [DummyExchange(len(rnd.cohort), state.params, Weighted(_bundle(state.params, 1.0), 1.0))]


def _bundle(update: Params, h: float) -> Params:
    return Params.bundle(update=update, scale=Params.from_scalars(h=h))


def qfedavg(solver: Solver = Solver(optimizer="sgd"), q: float = 1.0) -> QFedAvg:
    """Fair averaging: clients with a higher loss count more (Li et al. 2020)."""
    return QFedAvg(solver, q)
