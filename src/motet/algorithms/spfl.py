"""SPFL-like: every client moves along the updates of those that move as it does.

    A_ij = max(0, cos(Δᵢ, Δⱼ))^γ,      wᵢ ← wᵢ + Σⱼ A_ij nⱼ Δⱼ / Σₖ A_ik nₖ

The paper that ATC compares with defines relations among clients by the similarity of their gradients; neither text nor code
of it could be had, so this is a working definition, and results bear the name SPFL-like. A client's model lives in its own
memory; the server sees updates and sends each client its mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.algorithms.update_similarity import cosines
from motet.core.layers import Layers
from motet.core.params import Params, common_params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script, gather, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@dataclass(frozen=True)
class SimilarPeers:
    solver: Solver
    gamma: float
    shared: Layers = Layers.all()
    name: str = "spfl_like"
    personal: bool = True

    def init(self, start: InitialModels) -> None:
        layout = start.shared.layout
        self.shared.check(layout.names, layout.roles, f"{self.name}, the layers that are shared")

    def round(self, state: None, rnd: Round) -> Script[None]:
        moves: dict[ClientId, Weighted] = yield from gather(self.train, dict.fromkeys(rnd.cohort))
        clients = sorted(moves)
        layout = common_params([moves[c].value for c in clients]).layout  # tasks may differ in their heads
        moves = {c: Weighted(move.value.restrict(layout), move.weight) for c, move in moves.items()}
        alike = np.maximum(0, cosines([moves[c].value for c in clients])) ** self.gamma
        np.fill_diagonal(alike, 1.0)  # a client is like itself, even one that did not move
        mixtures = {}
        for client, row in zip(clients, alike, strict=True):
            total = RunningSum()
            for peer, share in zip(clients, row, strict=True):
                total.add(peer, moves[peer].scale_weight(float(share)))
            if total.weight:
                mixtures[client] = total.value().value - moves[client].value
        yield from gather(self.follow, mixtures)

    @work(reveals="each")
    def train(self, ctx: Context, _: None, own: Params | None) -> Work[tuple[Weighted, Params]]:
        before = self.assemble(ctx, None, own)
        after = yield from ctx.fit(before, self.solver)
        return Weighted((after.params - before).select_layers(self.shared), float(ctx.size)), after.params

    @work(reveals="each")
    def follow(self, ctx: Context, change: Params, own: Params) -> tuple[None, Params]:
        """From one's own move to the mixture; a client that is not reached keeps its own."""
        return None, own.updated(own.restrict(change.layout) + change)

    def view(self, state: None, client: ClientId) -> None:
        return None

    def assemble(self, ctx: Context, view: None, own: Params | None) -> Params:
        return ctx.initial_params if own is None else own


def spfl_like(
    solver: Solver = Solver(optimizer="sgd"), gamma: float = 1.0, shared: tuple[str, ...] = ("all",)
) -> SimilarPeers:
    """Every client moves along the updates of those that move as it does (a working definition of SPFL)."""
    return SimilarPeers(solver, gamma, Layers.parse(*shared))
