"""motet tune: a seeded search on the development set, with the same number of trials for every method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from motet.benchmark.run_store import RunStore
from motet.benchmark.tuning import Search, SearchKey, Trial, choose, parse_methods, render_choices
from motet.cli import app
from motet.core.errors import ConfigError
from motet.experiment.loop.json_files import write_json

RATES = "solver.lr=0.001,0.01,0.1"


def make_search(*searches: str, methods: tuple[str, ...] = ("fedavg", "fedprox"), **options: Any) -> Search:
    return Search("toy-classification", {}, parse_methods(methods, searches, "fedavg"), **options)


def write_scores(folder: Path, trials: list[Trial], dev: dict[float, float]) -> RunStore:
    """Write summaries in which the test score is the opposite of the score on the development set."""
    store = RunStore(folder)
    for trial in trials:
        for run in trial.runs:
            score = dev[trial.values["solver.lr"]]
            best = {"by": "accuracy", "round": 1, "dev": {"accuracy": score}, "test": {"accuracy": 1 - score}}
            store.run_folder(run.name).mkdir(parents=True)
            write_json(store.run_folder(run.name) / "summary.json", {"dev_best": best})
    return store


def test_every_method_has_the_same_number_of_trials() -> None:
    search = make_search(RATES, "fedprox:algorithm.mu=0.01,0.1,1")
    assert search.budget == 3, "the size of the smallest grid"
    assert [len(search.settings(method)) for method in search.methods] == [3, 3]
    fewer = make_search(RATES, "fedprox:algorithm.mu=0.01,0.1,1", trials=2)
    assert [len(fewer.settings(method)) for method in fewer.methods] == [2, 2]
    assert [set(values) for values in search.settings("fedprox")] == [{"solver.lr", "algorithm.mu"}] * 3


def test_the_same_seed_draws_the_same_trials() -> None:
    draws = [make_search("solver.lr=1e-4..1e-1", trials=5, seed=seed).settings("fedavg") for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert all(1e-4 <= values["solver.lr"] <= 1e-1 for values in draws[0])


def test_the_best_on_the_development_set_is_chosen_and_edges_are_reported(tmp_path: Path) -> None:
    search = make_search(RATES, methods=("fedavg",), seeds=2)
    trials = list(search.runs("cpu"))
    assert [run.config.data.dev_share for run in trials[0].runs] == [0.1, 0.1]
    assert trials[0].runs[0].config.seed != trials[0].runs[1].config.seed
    (choice,) = choose(search, trials, write_scores(tmp_path / "a", trials, {0.001: 0.2, 0.01: 0.8, 0.1: 0.3}))
    assert (choice.values, choice.score, choice.trials, choice.edges) == ({"solver.lr": 0.01}, 0.8, 3, ())
    (choice,) = choose(search, trials, write_scores(tmp_path / "b", trials, {0.001: 0.2, 0.01: 0.3, 0.1: 0.8}))
    assert choice.edges == ("solver.lr 0.1 is at the edge of the grid",)
    assert "| fedavg | 3 | 0.8000 | `solver.lr=0.1` | solver.lr 0.1 is at the edge of the grid |" in render_choices(
        [choice]
    )


@pytest.mark.parametrize(
    ("searches", "options", "message"),
    [
        (["solver.lr"], {}, "is not a list or a range"),
        (["solver.lr=2..1"], {}, "is not a list or a range"),
        (["scaffold:solver.lr=1"], {}, "names the method scaffold"),
        (["fedprox:algorithm.mu=1"], {}, "--search is missing for fedavg"),
        (["solver.lr=1e-4..1e-1"], {}, "--trials is missing"),
    ],
)
def test_a_mistake_is_explained(searches: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _ = make_search(*searches, **options).budget


def test_a_value_of_a_range_is_never_at_an_edge() -> None:
    assert SearchKey.parse("solver.lr=1e-4..1e-1").describe_edge(1e-4) == ""
    assert SearchKey.parse("solver.optimizer=sgd,adamw").describe_edge("sgd") == ""


def test_the_command_tunes_and_continues(tmp_path: Path) -> None:
    words = ["tune", "toy-classification", "rounds=1", "data.limit=60", "data.test_limit=20", "transport.workers=0"]
    words += ["--search", "solver.lr=0.01,0.1", "--device", "cpu", "--out", str(tmp_path)]
    first, second = (CliRunner().invoke(app, words) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert "0 of 2 runs done" in first.output and "2 of 2 runs done" in second.output
    best = json.loads((tmp_path / "tuning.json").read_text())
    (choice,) = best.values()
    assert choice["trials"] == 2 and choice["settings"]["solver.lr"] in (0.01, 0.1)
