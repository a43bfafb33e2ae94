"""Tables write negative numbers with a minus sign, so that they line up and do not look like names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.benchmarks import make_summary
from tests.unit.test_method_advice import FEATURES, make_setting
from tests.unit.test_method_comparison import write_method

from motet.benchmark.advice import describe_advice
from motet.benchmark.render import render_markdown
from motet.benchmark.result_tables import ResultTable
from motet.benchmark.table_entry import TableEntry, describe_difference
from motet.benchmark.tuning import Choice, render_choices
from motet.experiment.commands.compare import compare_runs
from motet.report.console_tables import build_comparison_table, build_results_table
from motet.report.number_text import count_of, format_range, use_minus_signs
from motet.report.significance import Comparison


def test_only_the_sign_of_a_number_is_changed() -> None:
    assert use_minus_signs("-1.5 ± 0.2 [-2.0, -.5]") == "−1.5 ± 0.2 [−2.0, −.5]"
    assert use_minus_signs("top-5 of 1e-05 on 2020-11-18") == "top-5 of 1e-05 on 2020-11-18"


def test_a_range_of_equal_numbers_is_one_number() -> None:
    assert format_range(np.array([60, 60])) == "60"
    assert format_range(np.array([12, 1250, 25])) == "12 to 1,250"


def test_one_thing_is_not_several() -> None:
    assert [count_of(n, "search", "searches") for n in (0, 1, 2)] == ["0 searches", "1 search", "2 searches"]
    assert count_of(1200, "run") == "1,200 runs"


def print_table(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def render_tables(folder: Path) -> Iterator[str]:
    """Yield every kind of table and sentence that can have negative scores or differences."""
    spread = {"mean": -0.25, "std": 0.5, "worst_decile": -0.75}
    scores = {"matthews": -0.25}
    summary = make_summary(primary_metric="matthews", final=scores, best=scores, clients_final=spread)
    yield print_table(build_results_table({"fedavg": summary}, "title"))
    yield print_table(build_comparison_table([("matthews", -0.25, -0.5)], ("a", "b")))
    yield compare_runs(write_method(folder / "a", 0.7, 0.01, 2), write_method(folder / "b", 0.6, 0.01, 2)).verdict
    yield describe_advice(FEATURES, [make_setting(FEATURES)])
    yield render_choices([Choice("fedavg", 3, "matthews", -0.25, {"solver.lr": 0.1})])
    comparison = Comparison(-1.0, -2.0, -0.5, 0.01, ("seeds",))
    entry = TableEntry(values=(-1.0, -2.0), comparison=comparison, p_value=0.01, interval=(-2.5, -0.5))
    yield describe_difference(entry)
    yield render_markdown(ResultTable("t", "t", "", ("a",), (), ("c",), (), {"a": {"c": entry}}))


def test_tables_write_negative_numbers_with_a_minus_sign(tmp_path: Path) -> None:
    for text in render_tables(tmp_path):
        assert "−" in text
        assert not re.search(r"(?<![\w-])-\.?\d", text)
