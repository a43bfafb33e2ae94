"""Verdicts on the claims of a paper: shown, not shown or contradicted, by a difference and its p-value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.benchmarks import finished_benchmark

from motet.benchmark.claim_significance import ClaimResult, ClaimTable
from motet.benchmark.run_store import RunStore
from motet.benchmark.table_entry import TableEntry
from motet.benchmark.table_metrics import TableMetric

NOISE = np.array([-0.6, -0.3, 0.0, 0.3, 0.6])


def entry(mean: float, seeds: int = 5, sign: int = 1) -> TableEntry:
    values = tuple((mean + sign * NOISE[:seeds]).tolist())
    return TableEntry(values=values, runs=tuple(f"{mean} {i}" for i in range(seeds)))


def check(claim: str, rows: dict[str, dict[str, TableEntry]], folder: Path, **options: Any) -> ClaimResult:
    (result,) = check_all([claim], rows, folder, **options)
    return result


def check_all(
    claims: list[str], rows: dict[str, dict[str, TableEntry]], folder: Path, **options: Any
) -> list[ClaimResult]:
    columns = list(next(iter(rows.values())))
    settings = {
        "metrics": {column: TableMetric("accuracy") for column in columns},
        "corpora": {column: column for column in columns},
        "averages": {},
        **options,
    }
    return ClaimTable(rows=list(rows), entries=rows, store=RunStore(folder), **settings).check(claims)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("a > b", "shown"),
        ("b > a", "contradicted"),
        ("b > c", "not shown"),
        ("b ≥ c", "not shown"),
        ("b ≥ c within 3", "shown"),
        ("b ≥ a within 3", "contradicted"),
        ("b ≈ c within 3", "shown"),
        ("b ≈ c within 0.5", "not shown"),
        ("a ≈ b within 3", "contradicted"),
        ("a > *", "shown"),
        ("b > *", "contradicted"),
    ],
)
def test_a_claim_has_one_of_three_verdicts(claim: str, verdict: str, tmp_path: Path) -> None:
    rows = {"a": {"x": entry(80.0)}, "b": {"x": entry(70.0, sign=-1)}, "c": {"x": entry(70.1)}}
    result = check(claim, rows, tmp_path)
    assert result.verdict == verdict
    assert (result.lead is not None and result.lead.low < result.lead.difference < result.lead.high) or "*" in claim


def test_verdicts_are_corrected_for_the_number_of_claims(tmp_path: Path) -> None:
    """Two leads with p = 0.037 are shown alone. Together with a third claim, they are not."""
    constant = TableEntry((70.0,) * 5, tuple(f"b {i}" for i in range(5)))
    rows = {"a": {"x": entry(70.65)}, "b": {"x": constant}, "c": {"x": constant}, "d": {"x": entry(90.0)}}
    alone = check("a > b", rows, tmp_path)
    assert alone.verdict == "shown" and alone.p_value == pytest.approx(0.037, abs=0.001)
    claims = ["a > b", "c > a", "d > b"]
    together = check_all(claims, rows, tmp_path)
    assert [result.verdict for result in together] == ["not shown", "not shown", "shown"]
    assert [result.p_value for result in together[:2]] == [pytest.approx(2 * (alone.p_value or 0))] * 2
    assert together[0].lead == alone.lead, "the interval is that of one difference"
    assert ", p = 0.075" in together[0].describe()


def test_a_table_of_equal_methods_rarely_shows_a_claim(tmp_path: Path) -> None:
    """Without the correction, one of the seven claims is shown or contradicted in 26 % of such tables."""
    rng, rows = np.random.default_rng(3), [f"m{i}" for i in range(8)]
    decided = []
    for _ in range(200):
        table = {row: {"x": TableEntry(tuple(rng.normal(70, 1, 5)), tuple("abcde"))} for row in rows}
        results = check_all([f"{row} > m0" for row in rows[1:]], table, tmp_path)
        decided.append(any(result.verdict != "not shown" for result in results))
    assert np.mean(decided) <= 0.07


def test_a_corpus_with_two_partitions_counts_once(tmp_path: Path) -> None:
    """a leads by 2 on two partitions of one corpus, and is behind by 4 on another corpus: on average it is behind."""
    numbers = {"a": {"p1": 72.0, "p2": 72.0, "q": 60.0}, "b": {"p1": 70.0, "p2": 70.0, "q": 64.0}}
    rows = {row: {c: entry(mean) for c, mean in cells.items()} for row, cells in numbers.items()}
    result = check("a > b", rows, tmp_path, corpora={"p1": "p", "p2": "p", "q": "q"})
    assert result.lead is not None and result.lead.difference == pytest.approx(-1.0)
    assert (result.compared, result.corpora, result.verdict) == (3, 2, "contradicted")
    assert result.exceptions == ("a 60.0, b 64.0 (q)",)
    assert "mean over 2 corpora" in result.describe()


def test_equal_means_do_not_disagree(tmp_path: Path) -> None:
    rows = {"a": {"x": entry(70.0), "y": entry(60.0)}, "b": {"x": entry(70.0), "y": entry(61.0)}}
    assert check("a > b", rows, tmp_path).exceptions == ("a 60.0, b 61.0 (y)",)


def test_an_average_and_megabytes_are_no_further_evidence(tmp_path: Path) -> None:
    cells = {"x": entry(70.0), "y": entry(60.0), "MB": entry(5.0), "AVG": entry(65.0)}
    metrics = {"x": TableMetric("accuracy"), "y": TableMetric("accuracy"), "MB": TableMetric("MB")}
    rows = {"a": cells, "b": {**cells, "x": entry(75.0, sign=-1)}}
    options: dict[str, Any] = {"metrics": metrics, "averages": {"AVG": ["x", "y"]}}
    assert check("a > b", rows, tmp_path, **options).compared == 2
    average = check("a/AVG > b/AVG", rows, tmp_path, **options)
    assert average.lead is not None and average.lead.difference == pytest.approx(-2.5)


def test_fewer_megabytes_are_better_and_need_no_five_seeds(tmp_path: Path) -> None:
    rows = {"a": {"MB": TableEntry((3.0,), ("r",))}, "b": {"MB": TableEntry((5.0,), ("s",))}}
    assert check("a/MB > b/MB", rows, tmp_path, metrics={"MB": TableMetric("MB")}).verdict == "shown"


def test_few_seeds_show_nothing_about_methods(tmp_path: Path) -> None:
    rows = {"a": {"x": entry(90.0, seeds=4)}, "b": {"x": entry(10.0, seeds=4)}}
    result = check("a > b", rows, tmp_path)
    assert (result.verdict, result.lead) == ("not shown", None)
    claim = finished_benchmark(tmp_path, seeds=2).tables()[0].claims[0]
    assert claim.verdict == "not shown" and claim.lead is not None
    assert "these trained models only, 5 seeds are needed" in claim.describe()


def test_cells_without_numbers_or_with_other_seeds_are_skipped(tmp_path: Path) -> None:
    rows = {"a": {"x": TableEntry(), "y": entry(80.0)}, "b": {"x": entry(70.0), "y": entry(70.0, seeds=4)}}
    result = check("a > b", rows, tmp_path)
    assert (result.compared, result.verdict) == (0, "not shown")


def test_a_claim_without_a_column_is_tested_for_each_kind_of_settings(tmp_path: Path) -> None:
    """a is better with label skew and worse with feature skew, so their mean would show nothing."""
    numbers = {"a": {"x": 82.0, "y": 78.0, "z": 60.0, "n": 71.0}, "b": {"x": 70.0, "y": 70.0, "z": 80.0, "n": 70.0}}
    rows = {row: {c: entry(mean) for c, mean in cells.items()} for row, cells in numbers.items()}
    kinds = {"label skew": ["x", "y"], "feature skew": ["z"], "quantity skew": ["absent"]}
    options = {"kinds": kinds, "corpora": dict.fromkeys("xyzn", "corpus")}
    results = check_all(["a > b", "b/z > a"], rows, tmp_path, **options)
    assert [(r.claim, r.verdict, r.compared) for r in results] == [
        ("a > b (label skew)", "shown", 2),
        ("a > b (feature skew)", "contradicted", 1),
        ("a > b (other columns)", "shown", 1),
        ("b/z > a", "shown", 1),
    ]
    assert results[0].lead is not None and results[0].lead.difference == pytest.approx(10.0)


def test_columns_in_which_seeds_are_missing_are_left_out(tmp_path: Path) -> None:
    unfinished = replace(entry(60.0, seeds=3), expected=5)
    rows = {"a": {"x": entry(80.0), "y": unfinished}, "b": {"x": entry(70.0, sign=-1), "y": unfinished}}
    result = check("a > b", rows, tmp_path)
    assert (result.verdict, result.compared) == ("shown", 1)
    assert "without y, where seeds are missing" in result.describe()
