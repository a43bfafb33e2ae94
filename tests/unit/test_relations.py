"""Who was put together with whom, read off a run's notes."""

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
    note(3, "neighbours", {"x/0": ["x/0", "x/1", "y/0"], "x/1": ["x/1", "x/0", "y/0"], "y/0": ["y/0", "x/1", "x/0"]}),
    note(4, "neighbours", {"x/0": ["x/0", "y/0", "x/1"], "x/1": ["x/1", "x/0"]}),
]


def test_shares_of_rounds_and_mean_places() -> None:
    found = read_relations(ROWS, nearest=2)
    assert found is not None
    assert found.clients == ("x/0", "x/1", "y/0")
    assert found.clusters is not None
    assert found.neighbours is not None
    assert found.places is not None
    assert found.clusters[0, 1] == found.clusters[1, 2] == 0.5
    assert found.clusters[0, 2] == 0.0
    assert found.neighbours[0].tolist()[1:] == [0.5, 0.5]
    assert found.neighbours[1, 0] == 1.0
    assert found.places[0, 1] == 1.5
    assert found.places[2, 0] == 2.0  # it took part once
    assert np.isnan(np.diag(found.places)).all()


def test_a_run_that_took_no_notes_has_no_relations() -> None:
    assert read_relations(ROWS[:1], nearest=2) is None


def test_what_there_is_is_drawn(tmp_path: Path) -> None:
    found = read_relations(ROWS[:3], nearest=2)
    assert found is not None
    assert [p.name for p in draw_relations(found, tmp_path)] == ["clusters.png"]
    whole = read_relations(ROWS, nearest=2)
    assert whole is not None
    drawn = draw_relations(whole, tmp_path)
    assert [p.name for p in drawn] == ["clusters.png", "neighbours.png", "places.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in drawn)
