"""The data that a run contributes to a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.report_data import read_run_report
from motet.experiment.recipe.recipe_files import load_recipe


@pytest.fixture(scope="module")
def distillation_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    settings = [
        "rounds=2",
        "device=cpu",
        "transport.workers=0",
        "data.limit=120",
        "data.test_limit=40",
        "solver.epochs=1",
    ]
    run_recipe(load_recipe("toy-adafd", settings), folder)
    return folder


def test_the_report_of_a_distillation_has_the_weights_of_each_client_by_round(distillation_run: Path) -> None:
    report = read_run_report(distillation_run)
    clients = set(report["client_scores"])
    assert len(clients) > 1
    for name in ("weight", "loss"):
        assert list(report["notes"][name]) == ["1", "2"]
        assert all(set(values) == clients for values in report["notes"][name].values())
    assert all(sum(values.values()) == pytest.approx(1) for values in report["notes"]["weight"].values())
    assert "accuracy" not in report["notes"], "scores are not notes of the algorithm"


def test_a_run_without_a_summary_has_the_primary_metric_of_its_evaluations(distillation_run: Path) -> None:
    finished = read_run_report(distillation_run)
    (distillation_run / "summary.json").rename(distillation_run / "summary.hidden")
    try:
        unfinished = read_run_report(distillation_run)
    finally:
        (distillation_run / "summary.hidden").rename(distillation_run / "summary.json")
    assert unfinished["primary_metric"] == finished["primary_metric"]
    assert not unfinished["finished"]
