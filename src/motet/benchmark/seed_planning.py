"""`motet power`: how many seeds a suite needs to find a difference, from the runs that it already has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from motet.benchmark.benchmark_folder import Benchmark
from motet.benchmark.column_significance import ColumnScores
from motet.benchmark.result_tables import ResultTable, heading_metrics
from motet.core.errors import ConfigError
from motet.experiment.commands.compare import load_paired_runs
from motet.report.paired_scores import PairedRuns
from motet.report.power import NOTHING_VARIES, SeedPlan, count_needed_seeds
from motet.report.significance import ROUNDING_ERROR


def plan_seeds(benchmark: Benchmark, difference: float) -> list[SeedPlan]:
    """Return a plan for every column with at least two methods and two seeds."""
    plans = [plan for table in benchmark.tables() for plan in _plan_table(benchmark, table, difference)]
    if not plans:
        raise ConfigError(
            f"'{benchmark.folder}' has no column with two methods and two seeds, so the variance between seeds is not "
            "known. Run the suite with --seeds 3 or more first."
        )
    _check_known(plans, f"'{benchmark.folder}'")
    return plans


def plan_runs(first: Path, second: Path, difference: float) -> SeedPlan:
    """Return a plan for two methods from the folders with their runs, one per seed. Scores are in percent."""
    pairs = load_paired_runs(first, second)
    if len(pairs.values) < 2:
        raise ConfigError(
            f"'{first}' has one run, so the variance between seeds is not known; expected a folder with the runs of "
            "several seeds."
        )
    plan = plan_pairs(f"{first} and {second}", [pairs], difference)
    _check_known([plan], f"'{first}' and '{second}'")
    return plan


def _check_known(plans: Sequence[SeedPlan], where: str) -> None:
    """Raise an error if no column has a difference."""
    if all(plan.deviation is None for plan in plans):
        raise ConfigError(
            f"{where}: {NOTHING_VARIES}. Check that the methods differ in a setting that takes effect, or evaluate them "
            "on more examples."
        )


def _plan_table(benchmark: Benchmark, table: ResultTable, difference: float) -> Iterator[SeedPlan]:
    metrics = heading_metrics(benchmark.suite.table(table.name))
    for column in table.columns:
        metric = metrics.get(column)
        entries = {row: table.entries[row][column] for row in table.rows if len(table.entries[row][column].values) > 1}
        seeds = {tuple((benchmark.store.summary(run) or {}).get("seed") for run in e.runs) for e in entries.values()}
        if metric is None or metric.spec.metric is None or len(entries) < 2 or len(seeds) != 1:
            continue
        scores = ColumnScores.load(entries, metric, benchmark.store)
        pairs = [
            PairedRuns.subtract(scores.runs[a], scores.runs[b], scores.shared) for a, b in combinations(entries, 2)
        ]
        yield plan_pairs(f"{table.name}, {column}", pairs, difference)


def plan_pairs(column: str, pairs: Sequence[PairedRuns], difference: float) -> SeedPlan:
    """Plan for pairs of methods. Pairs with equal scores in all runs say nothing about the variance."""
    seeds = len(pairs[0].values)
    estimates = [pair.compare_over_seeds() for pair in pairs if np.abs(pair.values).max() > ROUNDING_ERROR]
    if not estimates:
        return SeedPlan(column, seeds, deviation=None, fixed_error=None, seeds=None, most_seeds=None)
    parts = [(float((e.variance - e.fixed) * seeds), float(e.fixed)) for e in estimates]
    needed = [count_needed_seeds(difference, *part) for part in parts]
    ranked = sorted(math.inf if count is None else count for count in needed)
    median, most = ranked[len(ranked) // 2], ranked[-1]
    return SeedPlan(
        column=column,
        runs=seeds,
        deviation=math.sqrt(float(np.median([part[0] for part in parts]))),
        fixed_error=math.sqrt(float(np.median([part[1] for part in parts]))),
        seeds=None if median == math.inf else int(median),
        most_seeds=None if most == math.inf else int(most),
    )
