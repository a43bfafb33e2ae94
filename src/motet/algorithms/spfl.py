"""SPFL-like: each client's model moves along the updates of similar clients.

    A_ij = max(0, cos(Δᵢ, Δⱼ))^γ,      wᵢ ← wᵢ + Σⱼ A_ij nⱼ Δⱼ / Σₖ A_ik nₖ

Where we differ: the paper that ATC compares with relates clients by the similarity of their gradients, but neither
its text nor its code is available. This is a working definition, so results are labeled SPFL-like.

A client's model is its client state. The server reads the updates and sends each client its mixture of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.algorithms.update_similarity import cosine_similarities
from motet.core.layers import Layers
from motet.core.params import Params, common_params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Script, gather, to_all, work
from motet.core.weighted import Weighted, mean_of
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@dataclass(frozen=True)
class SPFLLike(Algorithm):
    solver: Solver
    gamma: float
    shared: Layers = Layers.all()
    name: str = "spfl_like"
    personal: bool = True

    def init(self, start: InitialModels) -> None:
        layout = start.shared.layout
        self.shared.check(layout.names, layout.roles, f"{self.name}, shared layers")

    def round(self, state: None, rnd: Round) -> Script[None]:
        replies: dict[ClientId, Weighted] = yield from gather(self.train, to_all(rnd.cohort, None))
        clients = sorted(replies)
        layout = common_params([replies[c].value for c in clients]).layout  # heads differ if tasks differ
        updates = {c: Weighted(reply.value.restrict(layout), reply.weight) for c, reply in replies.items()}
        similarities = np.maximum(0, cosine_similarities([updates[c].value for c in clients])) ** self.gamma
        np.fill_diagonal(similarities, 1.0)  # also for a client with a zero update
        corrections = {}
        for client, row in zip(clients, similarities, strict=True):
            terms = [updates[peer].scale_weight(float(s)) for peer, s in zip(clients, row, strict=True)]
            if any(term.weight for term in terms):
                corrections[client] = mean_of(terms).value - updates[client].value
        yield from gather(self.apply_correction, corrections)

    @work(reveals="each")
    def train(self, ctx: Context, _: None, client_state: Params | None) -> Work[tuple[Weighted, Params]]:
        before = self.assemble(ctx, None, client_state)
        result = yield from ctx.fit(before, self.solver)
        update = (result.params - before).select_layers(self.shared)
        return Weighted(update, float(ctx.size)), result.params

    @work(reveals="each", name="follow")
    def apply_correction(self, ctx: Context, correction: Params, client_state: Params) -> tuple[None, Params]:
        """Replace the client's update by the mixture. A client that cannot be reached keeps its update."""
        return None, client_state.updated(client_state.restrict(correction.layout) + correction)

    def dummy_exchanges(self, state: None, rnd: Round) -> list[DummyExchange]:
        update, clients = rnd.server.model.initial_params.select_layers(self.shared), len(rnd.cohort)
        return [
            DummyExchange(clients, payload=None, reply=Weighted(update, 1.0)),
            DummyExchange(clients, payload=update, reply=None),
        ]

    def view(self, state: None, client: ClientId) -> None:
        return None

    def assemble(self, ctx: Context, view: None, client_state: Params | None) -> Params:
        return ctx.initial_params if client_state is None else client_state


def spfl_like(
    solver: Solver = Solver(optimizer="sgd"), gamma: float = 1.0, shared: tuple[str, ...] = ("all",)
) -> SPFLLike:
    """Each client's model moves along the updates of similar clients (a working definition of SPFL)."""
    return SPFLLike(solver, gamma, Layers.parse(*shared))
