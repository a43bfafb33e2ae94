"""PerCFL: clustered federated learning (Sattler, Müller & Samek 2020). Clients with conflicting updates are separated.

All clients start in one cluster. Within a cluster, updates are averaged without weights, as in the authors' code. A
cluster is split in two when its mean update is small while some client's update is large (their equations 12 and
13):

    ‖meanᵢ Δᵢ‖ < ε₁   and   maxᵢ ‖Δᵢ‖ > ε₂,   with more than two clients and after the first 20 rounds.

The split is a complete-linkage clustering on −cos(Δᵢ, Δⱼ). A cluster is split only in a round in which all its
clients reply, so client sampling delays splits. The authors' ε₁ = 0.4 and ε₂ = 1.6 suit their network. With
`relative`, both are multiples of the mean norm of the cluster's updates in this round, so that they suit every model:

    ‖meanᵢ Δᵢ‖ < ε₁ · meanᵢ ‖Δᵢ‖   and   maxᵢ ‖Δᵢ‖ > ε₂ · meanᵢ ‖Δᵢ‖

The first ratio is 1 if all updates are equal and 0 if they cancel out; n orthogonal updates have 1/√n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.algorithms.update_similarity import cosine_similarities
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, work
from motet.core.weighted import Weighted, mean_of
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class ClientCluster:
    clients: tuple[str, ...]
    params: Params


@message
@dataclass(frozen=True, eq=False)
class PerCFLState:
    clusters: tuple[ClientCluster, ...]


@dataclass(frozen=True)
class PerCFL(Algorithm):
    solver: Solver
    eps1: float
    eps2: float
    after: int
    shared: Layers = Layers.all()
    relative: bool = False
    name: str = "percfl"
    personal: bool = True

    def init(self, start: InitialModels) -> PerCFLState:
        layout = start.shared.layout
        self.shared.check(layout.names, layout.roles, f"{self.name}, shared layers")
        return PerCFLState((ClientCluster(tuple(sorted(start.clients)), start.shared.select_layers(self.shared)),))

    def round(self, state: PerCFLState, rnd: Round) -> Script[PerCFLState]:
        updates = yield from gather(self.train, {client: self.view(state, client) for client in rnd.cohort})
        clusters: list[ClientCluster] = []
        for cluster in state.clusters:
            for clients in self.split_cluster(cluster, updates, rnd.index):
                replies = [updates[client] for client in clients if client in updates]
                params = cluster.params + mean_update(replies) if replies else cluster.params
                clusters.append(ClientCluster(clients, params))
        yield Note(values={"clusters": {c: i for i, cluster in enumerate(clusters) for c in cluster.clients}})
        return PerCFLState(tuple(clusters))

    def split_cluster(
        self, cluster: ClientCluster, updates: dict[ClientId, Params], round_index: int
    ) -> list[tuple[ClientId, ...]]:
        """Return the clients of the cluster, as one group or as two."""
        clients = cluster.clients
        if len(clients) <= 2 or round_index < self.after or any(client not in updates for client in clients):
            return [clients]
        replies = [updates[client] for client in clients]
        norms = [float(reply.norm()) for reply in replies]
        unit = sum(norms) / len(norms) if self.relative else 1.0
        if mean_update(replies).norm() >= self.eps1 * unit or max(norms) <= self.eps2 * unit:
            return [clients]
        labels = bipartition(cosine_similarities(replies))
        return [tuple(c for c, label in zip(clients, labels, strict=True) if label == half) for half in (0, 1)]

    def remarks(self, state: PerCFLState) -> list[str]:
        """Say so if no cluster was ever split: the run then is FedAvg with equal weights."""
        if len(state.clusters) > 1:
            return []
        how = "relative" if self.relative else "absolute"
        return [
            f"percfl never split the clients (eps1 {self.eps1:g}, eps2 {self.eps2:g}, {how}), so this is FedAvg with "
            "equal weights. Choose the thresholds on a development set; algorithm.relative=true makes them independent "
            "of the model."
        ]

    @work(reveals="each")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Params, Params | None]]:
        before = self.assemble(ctx, params, client_state)
        result = yield from ctx.fit(before, self.solver)
        unshared = result.params.exclude(params.layout)
        return (result.params - before).restrict(params.layout), unshared if unshared.layout.names else None

    def view(self, state: PerCFLState, client: ClientId) -> Params:
        """Return the model of the client's cluster. A new client gets the model of the largest cluster."""
        for cluster in state.clusters:
            if client in cluster.clients:
                return cluster.params
        return max(state.clusters, key=lambda cluster: len(cluster.clients)).params

    def assemble(self, ctx: Context, params: Params, client_state: Params | None) -> Params:
        return ctx.initial_params.updated(client_state, params)


def mean_update(updates: Sequence[Params]) -> Params:
    """Return the mean, without weights, of the clients that have trained. A client without examples has no update."""
    trained = [update for update in updates if update.flat.any()]
    return mean_of(Weighted(update, 1.0) for update in trained or updates[:1]).value


def bipartition(similarities: np.ndarray) -> np.ndarray:
    """Split clients into two clusters by complete linkage. Return labels 0 and 1; the first client's is 0."""
    from sklearn.cluster import AgglomerativeClustering

    clustering = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    labels: np.ndarray = clustering.fit_predict(-similarities)
    return np.where(labels == labels[0], 0, 1)


def percfl(
    solver: Solver = Solver(optimizer="sgd"),
    eps1: float = 0.4,
    eps2: float = 1.6,
    after: int = 20,
    shared: tuple[str, ...] = ("all",),
    relative: bool = False,
) -> PerCFL:
    """Split clients with conflicting updates into clusters, each with its model (PerCFL; Sattler et al. 2020)."""
    return PerCFL(solver, eps1, eps2, after, shared=Layers.parse(*shared), relative=relative)
