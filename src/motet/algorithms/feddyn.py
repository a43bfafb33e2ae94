"""FedDyn (Acar et al. 2021): a regularizer that changes each round, so that local and global optima agree.

    θᵢ ← argmin_θ Lᵢ(θ) − ⟨gᵢ, θ⟩ + α/2·‖θ − θᵗ‖²,    gᵢ ← gᵢ − α(θᵢ − θᵗ)                              (Algorithm 1)
    h ← h − α/m·Σᵢ(θᵢ − θᵗ),    θᵗ⁺¹ = meanᵢ θᵢ − h/α                  (m: all clients; the mean is without weights)

The minimum is approximated by the solver: −gᵢ is added to each gradient, and α is the coefficient of a proximal term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.algorithms.whole_model import require_whole_model
from motet.core.errors import ConfigError
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
class FedDynState:
    params: Params
    h: Params
    num_clients: int


@dataclass(frozen=True)
class FedDyn(Algorithm):
    solver: Solver  # with proximal_mu = alpha
    alpha: float
    name: str = "feddyn"

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ConfigError(f"feddyn: alpha is {self.alpha:g}; it must be > 0. Write e.g. algorithm.alpha=0.01.")

    def init(self, start: InitialModels) -> FedDynState:
        return FedDynState(start.shared, start.shared.zeros_like(), len(start.clients))

    def round(self, state: FedDynState, rnd: Round) -> Script[FedDynState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        h = state.h - (self.alpha * mean.weight / state.num_clients) * mean.value  # every client has weight 1
        return FedDynState(state.params + mean.value - (1 / self.alpha) * h, h, state.num_clients)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        require_whole_model(self.name, ctx, params)
        gradient = params.zeros_like() if client_state is None else client_state
        result = yield from ctx.fit(params, self.solver, gradient_correction=-1.0 * gradient)
        update = result.params - params
        has_data = result.steps > 0
        return Weighted(update, float(has_data)), gradient - self.alpha * update if has_data else None

    def view(self, state: FedDynState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view


def feddyn(solver: Solver = Solver(optimizer="sgd"), alpha: float = 0.01) -> FedDyn:
    """A dynamic regularizer aligns local optima with the global one (Acar et al. 2021)."""
    return FedDyn(replace(solver, proximal_mu=alpha), alpha)
