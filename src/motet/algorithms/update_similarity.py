"""Who learns alike? Read off the angle between what clients have learnt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from motet.core.params import Params
from motet.core.script import ClientId
from motet.core.weighted import RunningSum, Weighted

_COLUMNS = 2**20  # of all updates at a time: they are never stacked whole


def cosines(updates: Sequence[Params]) -> np.ndarray:
    """The cosine between any two updates; an update of zero is like nothing but itself."""
    gram = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for at in range(0, updates[0].layout.size if updates else 0, _COLUMNS):
        some = torch.stack([u.flat[at : at + _COLUMNS] for u in updates]).double()
        gram += (some @ some.T).cpu()
    norms = gram.diagonal().sqrt()
    near = (gram / (norms[:, None] * norms[None]).clamp(min=1e-30)).clamp(-1, 1)
    near.fill_diagonal_(1.0)
    found: np.ndarray = near.numpy()
    return found


def clustered(updates: Mapping[ClientId, Params], clusters: int) -> dict[ClientId, int]:
    """Agglomerative clustering by cosine distance, average linkage. Clusters are numbered by their first client."""
    names = sorted(updates)
    if clusters <= 1 or len(names) <= clusters:
        return {name: 0 if clusters <= 1 else i for i, name in enumerate(names)}
    from sklearn.cluster import AgglomerativeClustering

    far = 1 - cosines([updates[n] for n in names])
    labels = AgglomerativeClustering(clusters, metric="precomputed", linkage="average").fit_predict((far + far.T) / 2)
    order = list(dict.fromkeys(labels.tolist()))
    return {name: order.index(label) for name, label in zip(names, labels.tolist(), strict=True)}


def ranked(updates: Mapping[ClientId, Params]) -> dict[ClientId, tuple[ClientId, ...]]:
    """For each client all clients from the nearest to the farthest; itself first."""
    names = sorted(updates)
    near = cosines([updates[n] for n in names])
    np.fill_diagonal(near, 2.0)
    order = np.argsort(-near, axis=1, kind="stable")
    return {name: tuple(names[j] for j in order[i]) for i, name in enumerate(names)}


def mean_of(learnt: Mapping[ClientId, Weighted], who: Iterable[ClientId]) -> Params:
    """What some clients have learnt on average, weighted by their examples."""
    total = RunningSum()
    for client in sorted(who):
        total.add(client, learnt[client])
    return total.value().value
