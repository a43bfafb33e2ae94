"""PerCFL, Sattler's clustered federated learning (Sattler, Müller & Samek 2020): clients that pull apart go apart.

All begin in one cluster. Within a cluster updates are averaged, unweighted as in the authors' code. A cluster is cut in two
when it stands still as a whole while somebody in it still wants to move (their equations 12 and 13):

    ‖meanᵢ Δᵢ‖ < ε₁   and   maxᵢ ‖Δᵢ‖ > ε₂,   with more than two members and after the first 20 rounds.

The halves are those of complete-linkage clustering on −cos(Δᵢ, Δⱼ). A cluster is cut only in a round in which all its members
answered, so sampled cohorts postpone it. The authors' ε₁ = 0.4, ε₂ = 1.6 are for their network; scale both to yours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.algorithms.update_similarity import cosines
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script, gather, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class Cluster:
    members: tuple[str, ...]
    params: Params


@message
@dataclass(frozen=True, eq=False)
class Clusters:
    clusters: tuple[Cluster, ...]


@dataclass(frozen=True)
class Clustered:
    solver: Solver
    eps1: float
    eps2: float
    after: int
    shared: Layers = Layers.all()
    name: str = "percfl"
    personal: bool = True

    def init(self, start: InitialModels) -> Clusters:
        layout = start.shared.layout
        self.shared.check(layout.names, layout.roles, f"{self.name}, the layers that are shared")
        return Clusters((Cluster(tuple(sorted(start.clients)), start.shared.select_layers(self.shared)),))

    def round(self, state: Clusters, rnd: Round) -> Script[Clusters]:
        updates = yield from gather(self.train, {c: self.view(state, c) for c in rnd.cohort})
        found: list[Cluster] = []
        for cluster in state.clusters:
            for half in self.cut(cluster, updates, rnd.index):
                moved = [updates[c] for c in half if c in updates]
                found.append(Cluster(half, cluster.params + mean(moved) if moved else cluster.params))
        return Clusters(tuple(found))

    def cut(self, cluster: Cluster, updates: dict[ClientId, Params], index: int) -> list[tuple[ClientId, ...]]:
        """The cluster's members, together or in two halves."""
        members = cluster.members
        if len(members) <= 2 or index < self.after or any(c not in updates for c in members):
            return [members]
        moves = [updates[c] for c in members]
        if mean(moves).norm() >= self.eps1 or max(m.norm() for m in moves) <= self.eps2:
            return [members]
        sides = halves(cosines(moves))
        return [tuple(c for c, s in zip(members, sides, strict=True) if s == side) for side in (0, 1)]

    @work(reveals="each")
    def train(self, ctx: Context, params: Params, own: Params | None) -> Work[tuple[Params, Params | None]]:
        before = self.assemble(ctx, params, own)
        after = yield from ctx.fit(before, self.solver)
        kept = after.params.exclude(params.layout)
        return (after.params - before).restrict(params.layout), kept if kept.layout.names else None

    def view(self, state: Clusters, client: ClientId) -> Params:
        """The model of the client's cluster; for somebody who is in none, that of the largest."""
        its = [k for k in state.clusters if client in k.members]
        return (its[0] if its else max(state.clusters, key=lambda k: len(k.members))).params

    def assemble(self, ctx: Context, params: Params, own: Params | None) -> Params:
        return ctx.initial_params.updated(own, params)


def mean(updates: Sequence[Params]) -> Params:
    total = RunningSum()
    for update in updates:
        total.add("", Weighted(update, 1.0))
    return total.value().value


def halves(similarities: np.ndarray) -> np.ndarray:
    """0 or 1 a client: two clusters by complete linkage, the first client's called 0."""
    from sklearn.cluster import AgglomerativeClustering

    how = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    sides: np.ndarray = how.fit_predict(-similarities)
    return np.where(sides == sides[0], 0, 1)


def percfl(
    solver: Solver = Solver(optimizer="sgd"),
    eps1: float = 0.4,
    eps2: float = 1.6,
    after: int = 20,
    shared: tuple[str, ...] = ("all",),
) -> Clustered:
    """Clients whose updates pull apart are cut into clusters with a model each (PerCFL; Sattler et al. 2020)."""
    return Clustered(solver, eps1, eps2, after, Layers.parse(*shared))
