"""Per-FedAvg (Fallah et al. 2020): a global model that each client adapts with one step. The first-order variant.

    w̃ = w − α∇fᵢ(w; D),    w ← w − β∇fᵢ(w̃; D′)   in every local step, with fresh batches D and D′     (Algorithm 1, FO)
    w ← meanᵢ wᵢ, without weights

β is the solver's learning rate. The Hessian term of the full algorithm is left out, as in the authors' variant FO.

Where we differ: the authors adapt the final model. Deploying does not train here, so a client keeps the model that it adapted
in its last round, and a client that never took part deploys the global model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.whole_model import require_whole_model
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
class PerFedAvgState:
    params: Params


@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    solver: Solver
    alpha: float
    name: str = "per_fedavg"
    personal: bool = True

    def __post_init__(self) -> None:
        self.solver.require_plain_sgd(self.name)

    def init(self, start: InitialModels) -> PerFedAvgState:
        return PerFedAvgState(start.shared)

    def round(self, state: PerFedAvgState, rnd: Round) -> Script[PerFedAvgState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        return PerFedAvgState(state.params + mean.value)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        require_whole_model(self.name, ctx, params)
        examples = ctx.participant.split("train")
        step_solver = replace(self.solver, steps=1, schedule="constant", bucket=0)
        adapt = replace(step_solver, lr=self.alpha)
        first, second = (self.solver.draw_batches(len(examples), ctx.seed.derive(d).numpy()) for d in ("D", "D'"))
        if not first:
            return Weighted(params.zeros_like(), 0.0), None
        # In parts of a batch, because all texts of a client may not fit in memory at a time.
        adapt_to_all = replace(adapt, batch=len(examples), micro_batch=self.solver.micro_batch or self.solver.batch)
        adapted = yield from ctx.fit(params, adapt_to_all, purpose="deploy")
        current = params
        for i, (batch, other) in enumerate(zip(first, second, strict=True)):
            step = replace(step_solver, lr=self.solver.learning_rate_at(i, len(first)))
            inner = yield from ctx.fit(current, adapt, examples=examples.select(batch), purpose=f"inner {i}")
            outer = yield from ctx.fit(inner.params, step, examples=examples.select(other), purpose=f"outer {i}")
            current = current + (outer.params - inner.params)
        return Weighted(current - params, 1.0), adapted.params

    def view(self, state: PerFedAvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view if client_state is None else client_state


def per_fedavg(solver: Solver = Solver(optimizer="sgd"), alpha: float = 0.01) -> PerFedAvg:
    """A global model that each client adapts with one step, by first-order MAML (Fallah et al. 2020)."""
    return PerFedAvg(solver, alpha)
