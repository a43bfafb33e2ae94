"""Similarity of clients, measured by the cosine between their updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from motet.core.params import Params
from motet.core.script import ClientId

_CHUNK = 2**20  # parameters processed at a time, so that updates are never stacked as a whole


def cosine_similarities(updates: Sequence[Params]) -> np.ndarray:
    """Return the cosine of each pair of updates. A zero update has similarity 1 to itself and 0 to the others."""
    gram = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for start in range(0, updates[0].layout.size if updates else 0, _CHUNK):
        chunk = torch.stack([update.flat[start : start + _CHUNK] for update in updates]).double()
        gram += (chunk @ chunk.T).cpu()
    norms = gram.diagonal().sqrt()
    cosines = (gram / (norms[:, None] * norms[None]).clamp(min=1e-30)).clamp(-1, 1)
    cosines.fill_diagonal_(1.0)
    result: np.ndarray = cosines.numpy()
    return result


def cluster_clients(updates: Mapping[ClientId, Params], num_clusters: int) -> dict[ClientId, int]:
    """Cluster clients by cosine distance with average linkage. Clusters are numbered by their first client."""
    names = sorted(updates)
    if num_clusters <= 1 or len(names) <= num_clusters:
        return {name: 0 if num_clusters <= 1 else i for i, name in enumerate(names)}
    from sklearn.cluster import AgglomerativeClustering

    distances = 1 - cosine_similarities([updates[name] for name in names])
    clustering = AgglomerativeClustering(num_clusters, metric="precomputed", linkage="average")
    labels = clustering.fit_predict((distances + distances.T) / 2).tolist()
    order = list(dict.fromkeys(labels))
    return {name: order.index(label) for name, label in zip(names, labels, strict=True)}


def rank_by_similarity(updates: Mapping[ClientId, Params]) -> dict[ClientId, tuple[ClientId, ...]]:
    """For each client, rank all clients from most to least similar. The client itself comes first."""
    names = sorted(updates)
    similarities = cosine_similarities([updates[name] for name in names])
    np.fill_diagonal(similarities, 2.0)
    order = np.argsort(-similarities, axis=1, kind="stable")
    return {name: tuple(names[j] for j in order[i]) for i, name in enumerate(names)}
