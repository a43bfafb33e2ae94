"""Clusters and neighbors of clients, computed from the notes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from motet.report.cluster_plots import draw_relations, read_relations


def note(round: int, name: str, value: Any) -> dict[str, Any]:
    return {"round": round, "who": "server", "split": "note", "name": name, "value": value}


ROWS = [
    {"round": 1, "who": "server", "split": "global", "name": "score", "value": 0.5},
    note(1, "clusters", {"x/0": 0, "x/1": 0, "y/0": 1}),
    note(2, "clusters", {"x/0": 0, "x/1": 1, "y/0": 1}),
    note(3, "neighbors", {"x/0": ["x/0", "x/1", "y/0"], "x/1": ["x/1", "x/0", "y/0"], "y/0": ["y/0", "x/1", "x/0"]}),
    note(4, "neighbors", {"x/0": ["x/0", "y/0", "x/1"], "x/1": ["x/1", "x/0"]}),
]


def test_relations_are_shares_of_rounds_and_mean_ranks() -> None:
    relations = read_relations(ROWS, nearest=2)
    assert relations is not None
    assert relations.clients == ("x/0", "x/1", "y/0")
    assert relations.clusters is not None
    assert relations.neighbors is not None
    assert relations.ranks is not None
    assert relations.clusters[0, 1] == relations.clusters[1, 2] == 0.5
    assert relations.clusters[0, 2] == 0.0
    assert relations.neighbors[0].tolist()[1:] == [0.5, 0.5]
    assert relations.neighbors[1, 0] == 1.0
    assert relations.ranks[0, 1] == 1.5
    assert relations.ranks[2, 0] == 2.0, "y/0 took part in one round"
    assert np.isnan(np.diag(relations.ranks)).all()


def test_a_run_without_notes_has_no_relations() -> None:
    assert read_relations(ROWS[:1], nearest=2) is None


def test_only_recorded_relations_are_drawn(tmp_path: Path) -> None:
    clusters_only = read_relations(ROWS[:3], nearest=2)
    assert clusters_only is not None
    assert [p.name for p in draw_relations(clusters_only, tmp_path)] == ["clusters.png"]
    all_relations = read_relations(ROWS, nearest=2)
    assert all_relations is not None
    paths = draw_relations(all_relations, tmp_path)
    assert [p.name for p in paths] == ["clusters.png", "neighbors.png", "ranks.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in paths)
