"""FedAvg (McMahan et al. 2017): average the clients' updates, weighted by their number of examples.

    x ← SERVEROPT(x, Σ pᵢ Δᵢ / Σ pᵢ),   Δᵢ = after − before of CLIENTOPT from x                       (FedOpt framework)

Many methods are FedAvg with a different solver, server optimizer or selection of shared layers. Layers that are not
shared are client state. Clients send their updates; `sends="weights"` sends their weights instead, which makes a
difference if a codec rounds them.

Where we differ: FedNLP's code weights clients by mini-batches. Our default follows the paper and weights by
examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.jobs import FitResult
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer

Weighting = Literal["examples", "batches", "processed", "uniform"]
Sends = Literal["updates", "weights"]


@message
@dataclass(frozen=True, eq=False)
class FedAvgState:
    params: Params
    optimizer_state: Any


@dataclass(frozen=True)
class FedAvg(Algorithm):
    solver: Solver
    server: ServerOptimizer = SGD()
    shared: Layers = Layers.all()
    weighting: Weighting = "examples"
    sends: Sends = "updates"
    trained: Layers = Layers.all()  # the other layers stay as they are in the initial model
    frozen: Layers = Layers.none()  # layers that the model must freeze; models built from a recipe do
    local: Layers = Layers.none()  # never shared, even if they are part of `shared`
    buffer: int | None = None  # replies of an asynchronous update, which is their sum divided by this number (FedBuff)
    name: str = "fedavg"

    @property
    def personal(self) -> bool:
        return self.shared not in (Layers.all(), self.trained) or self.local != Layers.none()

    def init(self, start: InitialModels) -> FedAvgState:
        layout = start.shared.layout
        if trained := layout.select_layers(self.frozen).names:
            raise ConfigError(
                f"{self.name} needs {self.frozen} frozen, but the model trains them (e.g. {trained[0]}); "
                f"add {self.frozen} to model.freeze, or set algorithm.embeddings to global or local."
            )
        if not layout.names and self.shared != Layers.none():
            raise ConfigError(
                f"{self.name}: the models of this federation have no layers in common (by name and shape), so there is "
                "nothing to average; give all groups the same model, or use isolated."
            )
        self.shared.check(layout.names, layout.roles, f"{self.name}, shared layers")
        params = start.shared.select_layers(self.shared).exclude_layers(self.local)
        return FedAvgState(params, self.server.init(params))

    def round(self, state: FedAvgState, rnd: Round) -> Script[FedAvgState]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        update = mean.value if self.sends == "updates" else mean.value - state.params
        if self.buffer is not None:
            update = update * (mean.weight / self.buffer)
        return FedAvgState(*self.server.step(state.params, update, state.optimizer_state))

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        start = self.assemble(ctx, params, client_state)
        trained = None if self.trained == Layers.all() else self.trained
        result = yield from ctx.fit(start, self.solver, train_only=trained)
        after = result.params.restrict(params.layout)
        reply = after - params if self.sends == "updates" else after
        weighted = Weighted(reply, reply_weight(self.weighting, ctx, result))
        if after is result.params:  # all layers are shared
            return weighted, None
        # Also the head, if the clients' tasks differ.
        unshared = result.params.select_layers(self.trained).exclude(params.layout)
        return weighted, unshared if unshared.layout.names else None

    def view(self, state: FedAvgState, client: ClientId) -> Params:
        return state.params

    def assemble(self, ctx: Context, params: Params, client_state: Params | None) -> Params:
        return ctx.initial_params.updated(client_state, params)


def reply_weight(weighting: Weighting, ctx: Context, result: FitResult) -> float:
    """Return the weight of a client's reply. It is zero for a client without training data."""
    match weighting:
        case "examples":
            return float(ctx.size)
        case "batches":
            return float(result.steps)
        case "processed":
            return float(result.examples_processed)
        case "uniform":
            return float(result.steps > 0)


def fedavg(
    solver: Solver = Solver(optimizer="sgd"),
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
    shared: tuple[str, ...] = ("all",),
    sends: Sends = "updates",
) -> FedAvg:
    """Average the clients' updates, weighted by their number of examples (McMahan et al. 2017)."""
    return FedAvg(solver, server, shared=Layers.parse(*shared), weighting=weighting, sends=sends)
