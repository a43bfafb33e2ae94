"""Similarity, clusters and rankings of clients by their updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.algorithms import update_similarity
from motet.algorithms.update_similarity import (
    cluster_clients,
    cosine_similarities,
    rank_by_similarity,
)
from motet.core.params import Params
from motet.core.weighted import Weighted, mean_of


def make_update(*numbers: float) -> Params:
    return Params.from_tensors({"x": torch.tensor(numbers)})


# "a", "c" and "e" point in one direction, "b" and "d" in another
UPDATES = {
    "a": make_update(1, 0.1),
    "b": make_update(-0.1, 2),
    "c": make_update(3, 0),
    "d": make_update(0.1, 1),
    "e": make_update(5, 0.4),
}


def test_cosines_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = [torch.Generator().manual_seed(i) for i in range(4)]
    updates = [Params.from_tensors({"x": torch.randn(103, generator=generator)}) for generator in generators]
    cosines = cosine_similarities(updates)
    monkeypatch.setattr(update_similarity, "_CHUNK", 10)
    assert np.allclose(cosine_similarities(updates), cosines)
    expected = torch.nn.functional.cosine_similarity(updates[0].flat, updates[3].flat, dim=0)
    assert cosines[0, 3] == pytest.approx(float(expected), abs=1e-6)


def test_clusters_depend_on_the_direction_of_updates_and_not_on_their_length_or_order() -> None:
    labels = cluster_clients(UPDATES, 2)
    assert labels == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}
    assert cluster_clients(dict(reversed(UPDATES.items())), 2) == labels


def test_one_cluster_has_all_clients_and_too_many_clusters_have_one_client_each() -> None:
    assert set(cluster_clients(UPDATES, 1).values()) == {0}
    assert len(set(cluster_clients(UPDATES, 9).values())) == 5


def test_every_client_is_most_similar_to_itself_even_with_a_zero_update() -> None:
    ranking = rank_by_similarity({**UPDATES, "f": make_update(0, 0)})
    assert all(order[0] == client for client, order in ranking.items())
    assert set(ranking["b"][:2]) == {"b", "d"}
    assert all(len(order) == 6 for order in ranking.values())


def test_the_mean_is_weighted() -> None:
    updates = {
        "a": Weighted(make_update(1, 0), 3.0),
        "b": Weighted(make_update(0, 1), 1.0),
        "c": Weighted(make_update(9, 9), 5.0),
    }
    mean = mean_of(updates[client] for client in ("b", "a"))
    assert mean.value.flat.tolist() == [0.75, 0.25]
    assert mean.weight == 4.0
