"""pFedMe (T. Dinh et al. 2020): personal models with a Moreau envelope around the global model.

    θᵢ ≈ argmin_θ fᵢ(θ; batch) + λ/2·‖θ − wᵢ‖²,    wᵢ ← wᵢ − η·λ(wᵢ − θᵢ)   in every local round           (equation 9)
    w ← (1 − β)·w + β·meanᵢ wᵢ                                                       (Algorithm 1, without weights)

A local round takes one batch of the solver and approximates the minimum with `inner_steps` of its optimizer. There are as
many local rounds as the solver has steps. Clients deploy θᵢ. Inner steps start from the last θᵢ, as in the authors' code.
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
class PFedMeState:
    params: Params


@dataclass(frozen=True)
class PFedMe(Algorithm):
    solver: Solver
    lam: float
    eta: float
    beta: float
    inner_steps: int
    name: str = "pfedme"
    personal: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.eta * self.lam <= 1:
            raise ConfigError(
                f"pfedme: eta * lam is {self.eta * self.lam:g}; it must be above 0 and at most 1, so that the local model "
                "moves toward the personal one. Lower algorithm.eta."
            )
        self.solver.require_new_optimizer(self.name, "solves a new problem in every local step")
        _ = self.inner_solver  # raises if an option is not valid

    @property
    def inner_solver(self) -> Solver:
        return replace(self.solver, steps=self.inner_steps, proximal_mu=self.lam, schedule="constant", bucket=0)

    def init(self, start: InitialModels) -> PFedMeState:
        return PFedMeState(start.shared)

    def round(self, state: PFedMeState, rnd: Round) -> Script[PFedMeState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        return PFedMeState(state.params + self.beta * mean.value)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        require_whole_model(self.name, ctx, params)
        examples = ctx.participant.split("train")
        batches = self.solver.draw_batches(len(examples), ctx.seed.derive("batches").numpy())
        local = personal = params
        for i, indices in enumerate(batches):
            result = yield from ctx.fit(
                personal,
                self.inner_solver,
                examples=examples.select(indices),
                proximal_anchor=local,
                purpose=f"local round {i}",
            )
            personal = result.params
            local = local - (self.eta * self.lam) * (local - personal)
        return Weighted(local - params, float(len(batches) > 0)), personal if batches else None

    def view(self, state: PFedMeState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view if client_state is None else client_state


def pfedme(
    solver: Solver = Solver(optimizer="sgd", lr=0.01),
    lam: float = 15.0,
    eta: float = 0.005,
    beta: float = 1.0,
    inner_steps: int = 5,
) -> PFedMe:
    """Personal models with Moreau envelopes around the global model (T. Dinh et al. 2020)."""
    return PFedMe(solver, lam, eta, beta, inner_steps)
