"""What a run tells of itself, from the rows that real algorithms write."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.experiment.commands.report_data import RunReport, read_run_report
from motet.experiment.commands.run_folder import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story") / "run"
    settings = ["rounds=2", "device=cpu", "transport.workers=0", "data.limit=120", "data.test_limit=40"]
    run_recipe(load_recipe("toy-adafd", settings), folder)
    return folder


def test_weights_of_a_distillation_are_told_by_round_and_client(distilled: Path) -> None:
    told: RunReport = read_run_report(distilled)
    clients = set(told["client_scores"])
    assert len(clients) > 1
    for name in ("weight", "loss"):
        assert list(told["notes"][name]) == ["1", "2"]
        assert all(set(values) == clients for values in told["notes"][name].values())
    assert all(sum(values.values()) == pytest.approx(1) for values in told["notes"]["weight"].values())
    assert "accuracy" not in told["notes"], "how well a client does is no note of its algorithm"


def test_a_run_that_is_still_going_is_told_by_what_it_was_looked_at_for(distilled: Path) -> None:
    finished = read_run_report(distilled)
    (distilled / "summary.json").rename(distilled / "summary.away")
    try:
        assert read_run_report(distilled)["primary_metric"] == finished["primary_metric"]
    finally:
        (distilled / "summary.away").rename(distilled / "summary.json")
