"""The searches of a suite: before the runs of a table, its settings are chosen on the development set.

A search has its own seeds, so the runs of a table are not those by which its settings were chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.benchmark.cells import BenchmarkRun, CellPath, build_run, cell_settings, select_cells
from motet.benchmark.error_labels import label_config_errors
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite, TuneSpec, check_known
from motet.benchmark.table_metrics import CLIENT_KINDS, PRIMARY_METRIC, MetricSpec, TableMetric, parse_metric
from motet.benchmark.tuning import (
    Choice,
    SearchKey,
    SearchKeys,
    Trial,
    choose_trial,
    count_trials,
    draw_trials,
    nest_settings,
)
from motet.core.errors import ConfigError
from motet.experiment.recipe.flat_settings import flatten_settings
from motet.report.number_text import count_of, use_minus_signs

FIRST_SEARCH_SEED = 1  # the seeds of tables start at 42


@dataclass(frozen=True)
class RowSearch:
    """The trials of a row in one column, whose best settings some columns of the row use."""

    label: str  # the labels of its trials begin with it
    table: str
    row: str
    column: str
    columns: tuple[str, ...]
    spec: TuneSpec
    metric: MetricSpec
    keys: SearchKeys
    trials: tuple[Trial, ...]

    @property
    def runs(self) -> Iterator[BenchmarkRun]:
        return (run for trial in self.trials for run in trial.runs)

    def choose(self, store: RunStore) -> Choice:
        """Return the best trial. Until all have ended, it is the first, without a score."""
        if not all(store.is_settled(run.name) for run in self.runs):
            return Choice(self.row, len(self.trials), "", None, dict(self.trials[0].values), problem="not finished")
        return choose_trial(self.row, self.trials, self.keys, store, self.metric)

    def count_earlier_trials(self, finished: Collection[str]) -> int:
        """Return how many other trials of the row have run, by the labels of finished runs: those of an earlier grid."""
        trials = {label for label in finished if label.startswith(f"{self.label}/")}
        return len(trials - {run.config.recipe for run in self.runs})


@dataclass(frozen=True)
class TunedRow:
    """The settings that a search has chosen for a row, as a table shows them."""

    choice: Choice
    columns: tuple[str, ...]
    seeds: int
    at: str  # the column of the search, if other columns use its settings; else empty
    changes: str  # what the trials change in the recipe
    earlier_trials: int = 0  # of searches with another grid, in the same folder


def build_searches(
    suite: Suite, *, quick: bool = False, only: Sequence[str] = (), device: str = "auto"
) -> list[RowSearch]:
    """Return the searches that the selected cells need. Raise ConfigError if one cannot work."""
    columns: dict[CellPath, list[str]] = {}
    for name, row, column in select_cells(suite, quick=quick, only=only):
        spec = suite.search_for(suite.table(name), quick)
        if spec.row_keys(row):
            columns.setdefault((name, row, spec.at or column), []).append(column)
    searches = []
    for path, served in columns.items():
        with label_config_errors(f"{suite.name}/{path[0]}, tune"):
            searches.append(_build_search(suite, path, served, quick, device))
    return searches


def _build_search(suite: Suite, path: CellPath, columns: Sequence[str], quick: bool, device: str) -> RowSearch:
    name, row, column = path
    table = suite.table(name)
    check_known("at", "column", column, list(table.columns))  # of the suite's own search, or of the quick one
    spec = suite.search_for(table, quick)
    tuned_rows = [r for r in (*table.rows, *suite.bounds_for(table)) if spec.row_keys(r)]
    keys = {r: _parse_keys(spec.row_keys(r)) for r in tuned_rows}
    metric = parse_metric(spec.metric or _first_score(table.metrics(column).values()))
    evaluation = {"save_example_scores": False, "test": False, "local": metric.kind in CLIENT_KINDS}
    layers = [*cell_settings(suite, path, quick), {"evaluation": evaluation}, spec.set]
    label, trials = "/".join((suite.name, *path)), []
    for values in draw_trials(keys[row], count_trials(list(keys.values()), spec.trials)):
        trial = f"{label}/{', '.join(f'{p}={v}' for p, v in values.items())}"
        seeds = range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + spec.seeds)
        runs = [build_run(trial, [*layers, nest_settings(values)], seed, device) for seed in seeds]
        trials.append(Trial(row, values, tuple(runs)))
    _check_dev_set(trials[0].runs[0])
    return RowSearch(
        label=label,
        table=name,
        row=row,
        column=column,
        columns=tuple(columns),
        spec=spec,
        metric=metric,
        keys=keys[row],
        trials=tuple(trials),
    )


def _parse_keys(keys: Mapping[str, Any]) -> SearchKeys:
    parsed = {path: SearchKey.from_values(path, values) for path, values in keys.items()}
    for path, key in parsed.items():
        if key is None:
            raise ConfigError(f"{path} is {keys[path]!r}; expected a list of values, or a range such as 1e-4..1e-2.")
    return tuple(key for key in parsed.values() if key is not None)


def _first_score(shows: Iterable[str]) -> str:
    return next((metric for metric in shows if TableMetric(metric).is_score), PRIMARY_METRIC)


def _check_dev_set(run: BenchmarkRun) -> None:
    if not all(group.data.dev_share for group in run.config.client_groups):
        raise ConfigError("there is no development set to choose settings on; add data: {dev_share: 0.1} to the base.")


def choose_settings(searches: Sequence[RowSearch], store: RunStore) -> dict[str, list[TunedRow]]:
    """Return the chosen settings of the rows of each table."""
    chosen: dict[str, list[TunedRow]] = {}
    finished = store.finished_labels() if searches else set()
    for search in searches:
        at = search.column if search.columns != (search.column,) else ""
        changes = ", ".join(f"{path}={value}" for path, value in flatten_settings(search.spec.set).items())
        earlier = search.count_earlier_trials(finished)
        row = TunedRow(
            choice=search.choose(store),
            columns=search.columns,
            seeds=search.spec.seeds,
            at=at,
            changes=changes,
            earlier_trials=earlier,
        )
        chosen.setdefault(search.table, []).append(row)
    return chosen


def describe_unsearched(rows: Sequence[TunedRow], methods: Sequence[str]) -> str:
    """Say which methods of a table were not searched while others were; empty if all or none were."""
    searched = {row.choice.method for row in rows}
    others = [method for method in methods if method not in searched]
    if not searched.intersection(methods) or not others:
        return ""
    names = ", ".join(method for method in methods if method in searched)
    return f"Settings were searched for {names}, but not for {', '.join(others)}."


def tuned_settings(chosen: Mapping[str, Sequence[TunedRow]]) -> dict[CellPath, dict[str, Any]]:
    """Return the chosen settings by cell, as changes to its recipe."""
    return {
        (table, row.choice.method, column): nest_settings(row.choice.values)
        for table, rows in chosen.items()
        for row in rows
        for column in row.columns
    }


def describe_search(rows: Sequence[TunedRow]) -> str:
    """Describe the budget and the chosen settings of a table in Markdown."""
    budgets = dict.fromkeys((row.choice.trials, row.seeds, row.at, row.changes) for row in rows)
    sentences = []
    for trials, seeds, at, changes in budgets:
        where = f" in the column {at}" if at else " in each column"
        recipe = f" (trials: {changes})" if changes else ""
        sentences.append(
            f"Settings were chosen on the development set{where}, with {trials} trials of {count_of(seeds, 'seed')} for "
            f"each row of this list{recipe}; the table has other seeds, and the test set was not read for the choice."
        )
    if earlier := [f"{row.earlier_trials} for {row.choice.method}" for row in rows if row.earlier_trials]:
        sentences.append(f"Earlier searches with another grid had further trials: {', '.join(earlier)}.")
    lines = ["| row | columns | on dev | settings | |", "| --- | --- | ---: | --- | --- |"]
    for row in rows:
        choice = row.choice
        score = (
            use_minus_signs(f"{choice.metric} {choice.score:.4f}")
            if choice.score is not None
            else f"no score: {choice.problem}"
        )
        values = ", ".join(f"`{path}={value}`" for path, value in choice.values.items())
        columns = "all" if row.at else ", ".join(row.columns)
        lines.append(f"| {choice.method} | {columns} | {score} | {values} | {choice.remarks} |")
    return "\n\n".join([*sentences, "\n".join(lines)])
