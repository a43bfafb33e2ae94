"""Who learns alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.algorithms import update_similarity
from motet.algorithms.update_similarity import clustered, cosines, mean_of, ranked
from motet.core.params import Params
from motet.core.weighted import Weighted


def update(*numbers: float) -> Params:
    return Params.from_tensors({"x": torch.tensor(numbers)})


TWO_KINDS = {"a": update(1, 0.1), "b": update(-0.1, 2), "c": update(3, 0), "d": update(0.1, 1), "e": update(5, 0.4)}


def test_cosines_do_not_depend_on_how_many_columns_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Params.from_tensors({"x": torch.randn(103, generator=torch.Generator().manual_seed(i))}) for i in range(4)]
    whole = cosines(many)
    monkeypatch.setattr(update_similarity, "_COLUMNS", 10)
    assert np.allclose(cosines(many), whole)
    want = torch.nn.functional.cosine_similarity(many[0].flat, many[3].flat, dim=0)
    assert whole[0, 3] == pytest.approx(float(want), abs=1e-6)


def test_clients_that_learn_alike_stand_together_however_long_their_steps() -> None:
    group = clustered(TWO_KINDS, 2)
    assert group == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}
    assert clustered(dict(reversed(TWO_KINDS.items())), 2) == group


def test_one_cluster_is_everybody_and_more_clusters_than_clients_is_nobody_else() -> None:
    assert set(clustered(TWO_KINDS, 1).values()) == {0}
    assert len(set(clustered(TWO_KINDS, 9).values())) == 5


def test_everybody_is_nearest_to_himself_even_with_nothing_learnt() -> None:
    ranking = ranked({**TWO_KINDS, "f": update(0, 0)})
    assert all(order[0] == client for client, order in ranking.items())
    assert set(ranking["b"][:2]) == {"b", "d"}
    assert all(len(order) == 6 for order in ranking.values())


def test_the_mean_counts_examples() -> None:
    learnt = {"a": Weighted(update(1, 0), 3.0), "b": Weighted(update(0, 1), 1.0), "c": Weighted(update(9, 9), 5.0)}
    assert mean_of(learnt, ["b", "a"]).flat.tolist() == [0.75, 0.25]
