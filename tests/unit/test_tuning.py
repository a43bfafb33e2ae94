"""motet tune: a seeded search on the development set, with the same number of trials for every method."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import make_summary
from typer.testing import CliRunner

from motet.benchmark.benchmark_folder import load_benchmark
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import parse_suite
from motet.benchmark.suite_search import (
    FIRST_SEARCH_SEED,
    build_searches,
    choose_settings,
    describe_search,
    tuned_settings,
)
from motet.benchmark.table_metrics import parse_metric
from motet.benchmark.tuning import Search, SearchKey, Trial, choose, parse_methods, read_dev_score, render_choices
from motet.cli import app
from motet.core.errors import ConfigError
from motet.transport.json_files import write_json

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
            write_json(store.run_folder(run.name) / "summary.json", make_summary(dev_best=best))
    return store


def test_every_method_has_the_same_number_of_trials() -> None:
    search = make_search(RATES, "fedprox:algorithm.mu=0.01,0.1,1")
    assert search.budget == 3, "the size of the smallest grid"
    assert [len(search.settings(method)) for method in search.methods] == [3, 3]
    fewer = make_search(RATES, "fedprox:algorithm.mu=0.01,0.1,1", trials=2)
    assert [len(fewer.settings(method)) for method in fewer.methods] == [2, 2]
    assert [set(values) for values in search.settings("fedprox")] == [{"solver.lr", "algorithm.mu"}] * 3


@pytest.mark.parametrize("seed", range(5))
def test_trials_of_a_larger_grid_try_every_value_about_equally_often(seed: int) -> None:
    """A method with an option of its own does not lose learning rates that the others may try."""
    grid = ["solver.lr=0.1,0.3,1,3", "algorithm.mu=0.01,0.1,1"]
    draws = {trials: make_search(*grid, methods=("fedprox",), trials=trials, seed=seed) for trials in (4, 7, 12)}
    settings = {trials: search.settings("fedprox") for trials, search in draws.items()}
    for trials, drawn in settings.items():
        assert len({tuple(values.values()) for values in drawn}) == trials
        for path, size in (("solver.lr", 4), ("algorithm.mu", 3)):
            counts = Counter(values[path] for values in drawn)
            assert len(counts) == size and max(counts.values()) - min(counts.values()) <= 1, drawn
    assert all(values in settings[7] for values in settings[4]), "a larger search reuses the trials of a smaller one"


def test_the_same_seed_draws_the_same_trials() -> None:
    draws = [make_search("solver.lr=1e-4..1e-1", trials=5, seed=seed).settings("fedavg") for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert all(1e-4 <= values["solver.lr"] <= 1e-1 for values in draws[0])


def test_the_best_on_the_development_set_is_chosen_and_edges_and_ties_are_reported(tmp_path: Path) -> None:
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
    (choice,) = choose(search, trials, write_scores(tmp_path / "c", trials, {0.001: 0.5, 0.01: 0.5, 0.1: 0.5}))
    assert choice.ties == 2 and choice.remarks.startswith("2 other trials have the same score; solver.lr")
    store = write_scores(tmp_path / "d", trials, {0.001: math.nan, 0.01: 0.5, 0.1: 0.4})
    assert choose(search, trials, store)[0].remarks == "1 trial failed", "a method with failed trials had fewer"


@pytest.mark.parametrize(
    ("searches", "options", "message"),
    [
        (["solver.lr"], {}, "is not a list or a range"),
        (["solver.lr=2..1"], {}, "is not a list or a range"),
        (["scaffold:solver.lr=1"], {}, "names the method scaffold"),
        (["fedprox:algorithm.mu=1"], {}, "--search is missing for fedavg"),
        (["solver.lr=1e-4..1e-1"], {}, "--trials: the number of trials is missing"),
        (["seed=1,2,3"], {}, "a search cannot vary seed"),
        (["data.dev_share=0.1,0.5"], {}, "other values of data are not comparable"),
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
    for path in tmp_path.rglob("summary.json"):  # nobody looks at the test set before the settings are chosen
        summary = json.loads(path.read_text())
        assert not (summary["final"] or summary["local_test"] or summary["clients_final"] or summary["labels"])
        splits = {json.loads(line)["split"] for line in (path.parent / "metrics.jsonl").read_text().splitlines()}
        assert splits == {"dev"} and summary["dev_best"]["test"] == {}
    best = json.loads((tmp_path / "tuning.json").read_text())
    (choice,) = best.values()
    assert choice["trials"] == 2 and choice["settings"]["solver.lr"] in (0.01, 0.1)


SUITE = """
title: Tuned
base:
  rounds: 2
  data: {name: toy-classification, limit: 60, test_limit: 20, dev_share: 0.2}
  model: {name: tiny, max_tokens: 16, config: {hidden_size: 16, num_hidden_layers: 1, intermediate_size: 16}}
  partition: {type: label, clients: 3, alpha: 1.0}
  transport: {workers: 0}
bounds: {isolated: {algorithm: isolated}}
tune:
  keys: {solver.lr: [1e-3, 0.01, 0.1]}
  rows: {FedProx: {solver.lr: [0.01, 0.1], algorithm.mu: [0.01, 0.1]}, fixed: {}}
  at: mild
  set: {rounds: 1}
tables:
  methods:
    title: Methods
    shows: [local accuracy, MB]
    rows: {FedAvg: {algorithm: fedavg}, FedProx: {algorithm: fedprox}, fixed: {algorithm: fedavg}}
    columns: {mild: {}, strong: {set: {partition: {alpha: 0.1}}}}
quick: {set: {rounds: 1}}
"""


def test_a_suite_searches_with_the_same_number_of_trials_for_every_row_also_for_bounds() -> None:
    suite = parse_suite("tuned", SUITE)
    searches = build_searches(suite, only=["strong"], device="cpu")
    assert [(s.row, s.column, s.columns, len(s.trials)) for s in searches] == [
        (row, "mild", ("strong",), 3) for row in ("FedAvg", "FedProx", "isolated")
    ]
    (run,) = searches[0].trials[0].runs
    assert (run.config.rounds, run.config.seed, run.config.evaluation.local) == (1, FIRST_SEARCH_SEED, True)
    assert run.config.partition.options["alpha"] == 1.0
    assert [t.values["solver.lr"] for t in searches[0].trials] == [0.001, 0.01, 0.1], "YAML reads 1e-3 as a text"
    assert build_searches(suite, quick=True) == [], "the values are not meant for toy data"
    each = parse_suite("each", SUITE.replace("at: mild", "trials: 2"))
    assert [(s.row, s.column, len(s.trials)) for s in build_searches(each, only=["FedAvg"])] == [
        ("FedAvg", "mild", 2),
        ("FedAvg", "strong", 2),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("solver.lr: [1e-3, 0.01, 0.1]", "solver.lr: 0.1", "tune: solver.lr is 0.1; expected a list of values"),
        (", dev_share: 0.2", "", "tune: there is no development set to choose settings on"),
        ("solver.lr: [1e-3, 0.01, 0.1]", "solver.lr: 1e-3..0.1", "the number of trials is missing"),
        ("fixed: {algorithm: fedavg}", "fixed: {algorithm: fedavg}, x: {}}\n    tune: {at: other", "tune.at names the column"),
        ("at: mild", "at: mild\n  rows: {FedAgv: {}}", "suite tuned: tune names the row 'FedAgv', .* Did you mean 'FedAvg'"),
        ("solver.lr: [1e-3, 0.01, 0.1]", "partition.alpha: [1, 9]", "tune: a search cannot vary partition.alpha"),
        ("at: mild", "at: mlid", "tune: at names the column 'mlid', .* Did you mean 'mild'"),
        ("fixed: {algorithm: fedavg}", "fixed: {algorithm: fedavg}, x: {}}\n    tune: {rows: {other: {}}", "names the row"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_search_of_a_suite_is_explained(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_searches(parse_suite("tuned", SUITE.replace(old, new)))


def count_trials_of_another_grid(folder: Path) -> str:
    """Change the suite in a copy of a folder, so that a trial no longer belongs to its grid. Return how it is counted."""
    copy = folder.with_name("other-grid")
    shutil.copytree(folder, copy)
    (copy / "suite.yaml").write_text(SUITE.replace("[1e-3, 0.01, 0.1]", "[0.01, 0.1]"))
    text = describe_search(load_benchmark(copy).tuned["methods"])
    assert "with 2 trials of 1 seed for each row of this list" in text
    return text.partition("further trials: ")[2].partition(".")[0]


def test_motet_bench_searches_first_and_uses_the_settings_that_are_best_on_the_development_set(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(SUITE)
    words = ["bench", str(tmp_path / "tuned.yaml"), "--seeds", "1", "--only", "methods/FedAvg"]
    words += ["--device", "cpu", "--jobs", "1", "--out", str(tmp_path / "out")]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "Tuned, search: 1 search, 3 runs, 0 done." in first.output
    benchmark = load_benchmark(tmp_path / "out")
    store = benchmark.store
    scores = {
        trial.values["solver.lr"]: read_dev_score(
            store.summary(trial.runs[0].name), store.run_folder(trial.runs[0].name), parse_metric("local accuracy")
        )
        for trial in benchmark.searches[0].trials
    }
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["tables"]["methods"]["tuned"]
    best = max(scores, key=lambda rate: (scores[rate], -rate))
    assert (row["choice"]["values"], row["choice"]["score"]) == ({"solver.lr": best}, scores[best][1])  # type: ignore[index]
    rates = {(c.row, c.column): c.run.config.solver.get("lr") for c in benchmark.cells}
    assert rates["FedAvg", "mild"] == rates["FedAvg", "strong"] == best
    markdown = (tmp_path / "out" / "results.md").read_text()
    assert "in the column mild, with 3 trials of 1 seed for each row of this list (trials: rounds=1)" in markdown
    assert f"| FedAvg | all | accuracy {scores[best][1]:.4f} | `solver.lr={best}` |" in markdown  # type: ignore[index]
    assert "Earlier searches" not in markdown
    again = CliRunner().invoke(app, words)
    assert ", search:" not in again.output and "2 runs, 2 done" in again.output
    assert count_trials_of_another_grid(tmp_path / "out") == "1 for FedAvg"
    for path in list((tmp_path / "out" / "runs").iterdir()):  # a new recipe key changes the names of trials and runs
        config = path / "config.yaml"
        config.write_text(
            config.read_text().replace("test: false", "test: true")
        )  # older trials also read the test set
        path.rename(path.with_name(f"older-{path.name}"))
    renamed = CliRunner().invoke(app, words)
    assert ", search:" not in renamed.output and "2 runs, 2 done" in renamed.output
    benchmark = load_benchmark(tmp_path / "out")
    name = next(iter(benchmark.runs))
    (benchmark.store.run_folder(name) / "summary.json").unlink()
    benchmark.store.record_failure(name, "no memory")
    assert "2 runs, 1 done, 1 failed (--resume retries them)." in CliRunner().invoke(app, words).output


def test_a_row_without_a_finished_trial_keeps_its_first_settings_and_says_so(tmp_path: Path) -> None:
    searches = build_searches(parse_suite("tuned", SUITE), only=["FedAvg"], device="cpu")
    store = RunStore(tmp_path)
    for run in searches[0].runs:
        store.run_folder(run.name).mkdir(parents=True)
        store.record_failure(run.name, "out of memory")
    tuned = choose_settings(searches, store)
    assert tuned_settings(tuned)["methods", "FedAvg", "strong"] == {"solver": {"lr": 0.001}}
    assert "| FedAvg | all | no score: out of memory | `solver.lr=0.001` | – |" in describe_search(tuned["methods"])
