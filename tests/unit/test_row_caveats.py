"""A table says what a reader must know before comparing its rows, whatever the author of the suite had in mind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.benchmarks import SUITE, make_summary, open_suite, write_run

from motet.benchmark.benchmark_folder import Benchmark
from motet.benchmark.render import render_latex, render_markdown
from motet.benchmark.result_tables import ResultTable
from motet.experiment.commands.unequal_settings import list_unequal_settings
from motet.transport.json_files import write_json

FEDOPT = "FedOpt: {algorithm: fedopt}"


def build_table(folder: Path, *changes: tuple[str, str], seeds: int = 1, examples: int = 0) -> ResultTable:
    """Build the first table of a changed suite; with examples, its runs are finished and FedOpt is better."""
    text = SUITE
    for old, new in changes:
        text = text.replace(old, new, 1)
    folder.mkdir(exist_ok=True)
    benchmark = open_suite(folder, text, seeds)
    if examples:
        finish_runs(benchmark, examples)
    return benchmark.tables()[0]


def finish_runs(benchmark: Benchmark, examples: int) -> None:
    for cell in benchmark.cells:
        if cell.table == "methods" and not benchmark.store.is_done(cell.run.name):
            correct = (np.arange(examples) < examples * (0.8 if cell.row == "FedOpt" else 0.5)).astype(np.float32)
            write_run(benchmark.store, cell.run.name, float(correct.mean()), correct[:, None])


def test_a_fair_table_has_no_caveat(tmp_path: Path) -> None:
    table = build_table(tmp_path, seeds=5, examples=100)
    assert table.caveats == ()
    assert "Compare with care" not in render_markdown(table)


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ("rounds: 9", "rounds (2 for FedAvg; 9 for FedOpt)"),
        ("solver: {epochs: 3}", "solver.epochs (default for FedAvg; 3 for FedOpt)"),
        ("data: {limit: 30}", "data.limit (40 for FedAvg; 30 for FedOpt)"),
        ("model: {max_tokens: 32}", "model.max_tokens (16 for FedAvg; 32 for FedOpt)"),
        ("cohort: {size: 2}", "cohort.size (null for FedAvg; 2 for FedOpt)"),
    ],
)
def test_rows_with_another_budget_are_named(change: str, settings: str, tmp_path: Path) -> None:
    table = build_table(tmp_path, (FEDOPT, f"FedOpt: {{algorithm: fedopt, {change}}}"))
    (caveat,) = table.caveats
    assert caveat == f"The rows differ in more than the method: {settings}."
    assert caveat in render_markdown(table)
    assert caveat.replace("_", r"\_") in render_latex(table, "label", "Legend.")


def test_the_settings_of_a_method_are_its_own(tmp_path: Path) -> None:
    own = "solver: {lr: 0.3, optimizer: sgd}, server: {lr: 0.1}, codec: float16"
    assert build_table(tmp_path, (FEDOPT, f"FedOpt: {{algorithm: fedopt, {own}}}")).caveats == ()


def test_settings_with_many_values_are_named_without_them() -> None:
    def unequal(*rounds: int) -> dict[str, str]:
        return list_unequal_settings({f"m{i}": {"rounds": str(count)} for i, count in enumerate(rounds)})

    assert unequal(5, 5, 5) == {}
    assert unequal(5, 9, 5, 9, 5) == {"rounds": "9 for m1; m3; 5 for the others"}
    assert unequal(1, 2, 3, 4) == {"rounds": ""}


def test_a_round_chosen_on_the_test_set_is_named(tmp_path: Path) -> None:
    columns = "α=1: {}, α=9: {shows: [best accuracy], set"
    table = build_table(tmp_path, ("α=1: {}, α=9: {set", columns), (FEDOPT, "FedOpt: {evaluation: {every: 2}}"))
    every, chosen = table.caveats
    assert every.startswith(
        "α=9: the rows differ in more than the method: evaluation.every (1 for FedAvg; 2 for FedOpt"
    )
    assert chosen.startswith("α=9: the round was chosen on the test set, so the numbers are too high")


def test_a_small_test_set_is_named(tmp_path: Path) -> None:
    assert build_table(tmp_path, seeds=5, examples=10).caveats == (
        "The test set has 10 examples: with fewer than 30, p-values are rough.",
    )


def test_rows_with_other_corpora_are_not_compared(tmp_path: Path) -> None:
    """FedOpt has an easier corpus, so that it would be the best, and significantly so."""
    change = (FEDOPT, "FedOpt: {algorithm: fedopt, data: {name: toy-pairs}}")
    assert build_table(tmp_path / "one", seeds=5, examples=100).entries["FedOpt"]["α=1"].is_best
    folder = tmp_path / "two"
    build_table(folder, change, seeds=5, examples=100)
    benchmark = open_suite(folder, SUITE.replace(*change, 1), 5)
    for cell in benchmark.cells:
        if cell.table == "methods" and cell.row == "FedOpt":
            path = benchmark.store.run_folder(cell.run.name) / "summary.json"
            write_json(path, make_summary(dataset="easier", final={"accuracy": 0.8}, items="easier"))
    table = benchmark.tables()[0]
    assert table.caveats[0] == "The rows have other corpora, so their scores are not compared."
    entries = [table.entries[row]["α=1"] for row in table.rows]
    assert not any(entry.is_best or entry.is_tied or entry.comparison for entry in entries)
    assert [claim.compared for claim in table.claims if "FedAvg" in claim.claim] == [0]


def test_a_search_of_some_rows_names_the_others(tmp_path: Path) -> None:
    data = ("test_limit: 20}", "test_limit: 20, dev_share: 0.2}")
    search = ("title: Methods", "title: Methods\n    tune: {rows: {FedOpt: {solver.lr: [0.1, 1]}}}")
    assert build_table(tmp_path / "some", data, search).caveats == (
        "Settings were searched for FedOpt, but not for FedAvg.",
    )
    every = ("title: Methods", "title: Methods\n    tune: {keys: {solver.lr: [0.1, 1]}}")
    assert build_table(tmp_path / "all", data, every).caveats == ()
