"""motet compare and motet power for methods: folders with the runs of several seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.benchmarks import finished_benchmark, make_stamp, make_summary
from typer.testing import CliRunner

from motet.benchmark.seed_planning import plan_pairs, plan_runs, plan_seeds
from motet.cli import app
from motet.core.errors import ConfigError
from motet.experiment.commands.compare import compare_runs
from motet.experiment.loop.example_scores import write_example_scores
from motet.experiment.recipe.recipe_files import load_recipe
from motet.report.paired_scores import PairedRuns, RunScores, SharedUnits
from motet.report.power import describe_assumptions
from motet.transport.json_files import write_json

DIFFICULTY = np.random.default_rng(8).random(300)
CLIENTS = ("a", "b", "c")


def write_method(folder: Path, accuracy: float, deviation: float, seeds: int, first: int = 42) -> Path:
    """Write the runs of a method: one folder per seed, with per-example scores and the scores of three clients."""
    for seed in range(first, first + seeds):
        run = folder / f"s{seed}"
        run.mkdir(parents=True)
        rng = np.random.default_rng([seed, *folder.name.encode()])
        right = (DIFFICULTY + rng.normal(0, 0.1, 300) < accuracy + deviation * rng.normal()).astype(np.float32)
        write_example_scores(run, {"": right[:, None]})
        (run / "config.yaml").write_text(yaml.safe_dump(load_recipe("quickstart", [f"seed={seed}"]).to_dict()))
        rows = [
            {
                "round": 1,
                "who": who,
                "split": "test",
                "name": "accuracy",
                "value": accuracy + 0.1 * i,
                **make_stamp(1.0),
            }
            for i, who in enumerate(CLIENTS)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        summary = make_summary(final={"accuracy": float(right.mean())}, items="test set", seed=seed)
        write_json(run / "summary.json", summary)
    return folder


def test_a_difference_that_seeds_explain_is_none_between_methods(tmp_path: Path) -> None:
    first = write_method(tmp_path / "a", 0.60, 0.06, 5)
    second = write_method(tmp_path / "b", 0.62, 0.06, 5)
    verdict = compare_runs(first, second).verdict
    assert "not significant" in verdict
    assert "about the methods: the test varies seeds and examples" in verdict
    assert "Worst tenth of the clients: +0.0200 (95 % interval" in verdict
    for summary in second.glob("*/summary.json"):
        write_json(summary, {**json.loads(summary.read_text()), "partition": {"digest": "of other clients"}})
    assert "Worst tenth" not in compare_runs(first, second).verdict, "these clients have the same names and other texts"
    far = write_method(tmp_path / "c", 0.85, 0.01, 5)
    assert ": significant" in compare_runs(first, far).verdict
    models = compare_runs(first / "s42", far / "s42").verdict
    assert "about these trained models on new examples, not about the methods" in models


def test_a_comparison_names_other_causes_than_the_method(tmp_path: Path) -> None:
    """Three times the rounds, and another version: the difference may come from these."""
    first, second = write_method(tmp_path / "a", 0.6, 0.01, 5), write_method(tmp_path / "b", 0.9, 0.01, 5)
    assert "Compare with care" not in compare_runs(first, second).verdict
    for run in second.iterdir():
        longer = load_recipe("quickstart", [f"seed={run.name[1:]}", "rounds=24", "solver.lr=0.3"])
        (run / "config.yaml").write_text(yaml.safe_dump(longer.to_dict()))
    summary = json.loads((second / "s42" / "summary.json").read_text())
    write_json(second / "s42" / "summary.json", {**summary, "versions": {"motet": "9.9"}})
    comparison = compare_runs(first, second)
    assert f"they differ in more than the method: rounds (8 for {first}; 24 for {second})." in comparison.verdict
    assert "with different versions: Motet 9.9 and an unknown version of Motet." in comparison.verdict
    assert "p < 0.0001 over 300 examples: significant" in comparison.verdict, "a p-value is never 0"


def test_a_tiny_test_set_gives_a_rough_p_value(tmp_path: Path) -> None:
    first, second = (write_method(tmp_path / name, 0.6, 0.01, 1) / "s42" for name in "ab")
    write_example_scores(first, {"": np.zeros((3, 1), np.float32)})
    write_example_scores(second, {"": np.ones((3, 1), np.float32)})
    verdict = compare_runs(first, second).verdict
    assert "over 3 examples: not significant. With fewer than 30 examples, p is rough." in verdict


def test_other_seeds_and_unfinished_runs_are_rejected(tmp_path: Path) -> None:
    first = write_method(tmp_path / "a", 0.6, 0.01, 2)
    with pytest.raises(ConfigError, match="expected the same seeds"):
        compare_runs(first, write_method(tmp_path / "b", 0.6, 0.01, 3))
    with pytest.raises(ConfigError, match="several runs with one seed"):
        write_method(tmp_path / "c", 0.6, 0.01, 1)
        (tmp_path / "c" / "s42").rename(tmp_path / "c" / "again")
        write_method(tmp_path / "c", 0.6, 0.01, 1)
        compare_runs(first, tmp_path / "c")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no runs"):
        compare_runs(first, tmp_path / "empty")


def test_runs_with_other_metrics_are_rejected(tmp_path: Path) -> None:
    first, second = (write_method(tmp_path / name, 0.6, 0.01, 1) / "s42" for name in "ab")
    summary = json.loads((second / "summary.json").read_text())
    write_json(second / "summary.json", {**summary, "primary_metric": "f1", "final": {"f1": 0.5}})
    with pytest.raises(ConfigError, match=r"measured by accuracy and .* by f1; expected runs with the same primary"):
        compare_runs(first, second)


def test_a_folder_with_two_methods_is_rejected(tmp_path: Path) -> None:
    first, second = (write_method(tmp_path / name, 0.6, 0.01, 3) for name in "ab")
    elsewhere = load_recipe("quickstart", ["seed=43", "device=cpu", "transport.workers=1"])
    (first / "s43" / "config.yaml").write_text(yaml.safe_dump(elsewhere.to_dict()))
    compare_runs(first, second)
    other = load_recipe("quickstart", ["seed=44", "solver.lr=0.3", "algorithm=fedprox"])
    (first / "s44" / "config.yaml").write_text(yaml.safe_dump(other.to_dict()))
    with pytest.raises(
        ConfigError, match=r"runs with other values of algorithm.*solver.lr.*; expected the runs of one"
    ):
        compare_runs(first, second)


@pytest.mark.parametrize("sizes", [(9, 9), (9, 8)], ids=["all clients", "one client"])
def test_clients_with_other_texts_are_not_compared(sizes: tuple[int, int], tmp_path: Path) -> None:
    """Two divisions of the same corpus can give all clients, or one of them, as many test texts, which are others."""
    folders = [write_method(tmp_path / name, 0.6, 0.05, 2) for name in "ab"]
    for folder, size in zip(folders, sizes, strict=True):
        for run in folder.iterdir():
            write_example_scores(run, {"a": np.ones((9, 1), np.float32), "b": np.zeros((size, 1), np.float32)})
            summary = json.loads((run / "summary.json").read_text())
            write_json(run / "summary.json", {**summary, "partition": {"digest": folder.name}})
    sentence = "divide the texts over clients in different ways"
    assert sentence in compare_runs(*folders).verdict
    with pytest.raises(ConfigError, match=sentence):
        plan_runs(*folders, 1.0)


def test_power_says_how_many_seeds_a_difference_needs(tmp_path: Path) -> None:
    first = write_method(tmp_path / "a", 0.6, 0.03, 4)
    second = write_method(tmp_path / "b", 0.6, 0.03, 4)
    large, small = (plan_runs(first, second, points) for points in (20.0, 2.0))
    assert large.seeds is not None and small.seeds is not None and 5 <= large.seeds < small.seeds
    with pytest.raises(ConfigError, match="has one run"):
        plan_runs(first / "s42", second / "s42", 1.0)
    with pytest.raises(ConfigError, match="the methods had equal scores in all runs"):
        plan_runs(first, first, 1.0)


def make_pairs(*differences: float) -> PairedRuns:
    scores = [RunScores(value) for value in differences]
    return PairedRuns.subtract(scores, [RunScores(0.0)] * len(scores), SharedUnits(examples=False))


def test_power_plans_every_column_of_a_suite(tmp_path: Path) -> None:
    benchmark = finished_benchmark(tmp_path)
    (plan,) = plan_seeds(benchmark, 9.0)
    assert plan.column == "methods, α=1"
    assert plan.deviation == pytest.approx(1.2**0.5)
    result = CliRunner().invoke(app, ["power", str(benchmark.folder), "--difference", "0.1"])
    assert result.exit_code == 0, result.output
    assert "methods, α=1" in result.output and "the test set is too small" in result.output
    equal, unequal = make_pairs(0.0, 0.0, 0.0), make_pairs(0.0, 1.0, 3.0)
    unknown = plan_pairs("equal", [equal], 1.0)
    assert unknown.format_cells() == ["3", "?", "?", "?", "?"]
    assert "equal scores in all runs" in describe_assumptions([unknown, plan])
    assert plan_pairs("one pair", [equal, unequal], 1.0) == plan_pairs("one pair", [unequal], 1.0)
    (tmp_path / "one").mkdir()
    with pytest.raises(ConfigError, match="no column with two methods and two seeds"):
        plan_seeds(finished_benchmark(tmp_path / "one", seeds=1), 1.0)
