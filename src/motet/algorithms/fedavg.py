"""FedAvg (McMahan et al. 2017): average what clients learn, weighted by their examples.

    x ← SERVEROPT(x, Σ pᵢ Δᵢ / Σ pᵢ),   Δᵢ = after − before of CLIENTOPT from x                       (FedOpt frame)

Most methods are this with another field: another solver, server optimiser, or choice of layers that leave the client. What
does not leave is the client's memory. FedNLP's code weights by mini-batches; the default here is the paper's, by examples.
Clients send what they changed; `sends="weights"` sends where they arrived, which is another thing once a codec rounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.jobs import FitResult
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer

Weighting = Literal["examples", "batches", "processed", "uniform"]
Sends = Literal["updates", "weights"]


@message
@dataclass(frozen=True, eq=False)
class AvgState:
    params: Params
    optimizer: Any


@dataclass(frozen=True)
class FedAvg:
    solver: Solver
    server: ServerOptimizer = Apply()
    shared: Layers = Layers.all()
    weighting: Weighting = "examples"
    sends: Sends = "updates"
    frozen: Layers = Layers.none()  # what the model must not train; a recipe's model is made so
    name: str = "fedavg"

    @property
    def personal(self) -> bool:
        return self.shared != Layers.all()

    def init(self, start: InitialModels) -> AvgState:
        layout = start.shared.layout
        if trained := layout.select_layers(self.frozen).names:
            raise ConfigError(
                f"{self.name} wants {self.frozen} frozen, but this model trains them ({trained[0]}, …); add {self.frozen} to "
                "the model's freeze, or choose embeddings=global or local."
            )
        if not layout.names and self.shared != Layers.none():
            raise ConfigError(
                f"{self.name}: the models of this federation have none of the layers to be averaged ({self.shared}) in common "
                "(by name and shape); give the groups like models, or use a method that averages none (isolated)."
            )
        self.shared.check(layout.names, layout.roles, f"{self.name}, the layers that are shared")
        params = start.shared.select_layers(self.shared)
        return AvgState(params, self.server.init(params))

    def round(self, state: AvgState, rnd: Round) -> Script[AvgState]:
        sent = yield from total(self.train, to_all(rnd.cohort, state.params))
        update = sent.value if self.sends == "updates" else sent.value - state.params
        params, optimizer = self.server.step(state.params, update, state.optimizer)
        return AvgState(params, optimizer)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, own: Params | None) -> Work[tuple[Weighted, Params | None]]:
        before = self.assemble(ctx, params, own)
        after = yield from ctx.fit(before, self.solver)
        learnt = after.params.restrict(params.layout)
        sent = learnt - params if self.sends == "updates" else learnt
        kept = after.params.exclude(params.layout)  # what is not shared, or is of this client's task alone (its head)
        return Weighted(sent, weight_of(self.weighting, ctx, after)), kept if kept.layout.names else None

    def view(self, state: AvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, own: Params | None) -> Params:
        return ctx.initial_params.updated(own, params)


def weight_of(weighting: Weighting, ctx: Context, fitted: FitResult) -> float:
    """How much a client's reply counts. A client that trained on nothing counts nothing."""
    match weighting:
        case "examples":
            return float(ctx.size)
        case "batches":
            return float(fitted.steps)
        case "processed":
            return float(fitted.examples_processed)
        case "uniform":
            return float(fitted.steps > 0)


def fedavg(
    solver: Solver = Solver(optimizer="sgd"),
    server: ServerOptimizer = Apply(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
    sends: Sends = "updates",
) -> FedAvg:
    """Average what clients learn, weighted by their examples (McMahan et al. 2017)."""
    return FedAvg(solver, server, Layers.parse(*shared), weighting, sends=sends)
