"""From runs to tables: mean and deviation over seeds, the best, what is not told apart from it, the published numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from motet.benchmark.cells import Cell
from motet.benchmark.claims import ClaimResult, check_claims
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite, TableSpec
from motet.benchmark.table_metrics import ExampleScores, TableMetric
from motet.report.significance import Statistic, paired_bootstrap

SIGNIFICANCE_LEVEL = 0.05  # of significance


@dataclass(frozen=True)
class TableEntry:
    """One number of a table: a value a seed. `p` is against the best of the column; `missing` says why there is none."""

    values: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()
    published: float | None = None
    best: bool = False
    p: float | None = None
    missing: str = ""
    asked: int = 0  # for so many seeds

    @property
    def partial(self) -> bool:
        """Some of its seeds are missing."""
        return 0 < len(self.values) < self.asked

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def tied(self) -> bool:
        """Not the best, but not told apart from it either."""
        return not self.best and self.p is not None and self.p >= SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class ResultTable:
    """A table as it came out."""

    name: str
    title: str
    note: str
    rows: tuple[str, ...]
    bounds: tuple[str, ...]
    columns: tuple[str, ...]
    lower: tuple[str, ...]  # columns in which less is better
    entries: Mapping[str, Mapping[str, TableEntry]]
    claims: tuple[ClaimResult, ...] = field(default=())
    over_rounds: bool = False  # its columns are one number after different rounds

    def untested(self, column: str) -> bool:
        """Whether its numbers are ranked though nobody can say how surely: nothing that is kept of test items gives them."""
        found = [self.entries[row][column] for row in self.rows]
        return column not in self.lower and any(e.best for e in found) and all(e.p is None for e in found)

    def plain(self) -> dict[str, Any]:
        """For results.json."""
        cells = {
            row: {
                name: {**asdict(e), "mean": e.mean, "deviation": e.deviation, "tied": e.tied, "partial": e.partial}
                for name, e in of_row.items()
            }
            for row, of_row in self.entries.items()
        }
        return {**{k: v for k, v in asdict(self).items() if k != "entries"}, "cells": cells}


def build_tables(suite: Suite, cells: Sequence[Cell], store: RunStore) -> list[ResultTable]:
    """Every table of which there are cells."""
    names = dict.fromkeys(cell.table for cell in cells)
    return [_table(suite, name, [c for c in cells if c.table == name], store) for name in names]


def _table(suite: Suite, name: str, cells: Sequence[Cell], store: RunStore) -> ResultTable:
    table = suite.table(name)
    rows, columns = dict.fromkeys(c.row for c in cells), dict.fromkeys(c.column for c in cells)
    bounds = tuple(r for r in rows if r in suite.bounds_for(table))
    readings = {n: r for column in columns for n, r in _readings(table, column).items()}
    entries: dict[str, dict[str, TableEntry]] = {row: {} for row in rows}
    for row in rows:
        for column in columns:
            here = [c for c in cells if (c.row, c.column) == (row, column)]
            for place, (shown, reading) in enumerate(_readings(table, column).items()):
                entries[row][shown] = _entry(here, reading, store, _published(table, row, column, place))
        whole = {
            m: parts for m, parts in table.average.items() if all(p in columns or p in entries[row] for p in parts)
        }
        for mean, parts in whole.items():  # a mean over a part of the columns would stand beside the paper's over all
            entries[row][mean] = _average(table, entries[row], parts, _published(table, row, mean, 0))
    shows = tuple(next(iter(entries.values())))
    methods = [r for r in rows if r not in bounds]
    for column in shows:
        _rank(entries, methods, column, readings.get(column), store)
    lower = tuple(c for c in shows if c in readings and readings[c].lower_is_better)
    over_rounds = len({(r.course, r.of) for r in readings.values()}) == 1 and all(r.course for r in readings.values())
    made = ResultTable(
        name, table.title, table.note, tuple(methods), bounds, shows, lower, entries, over_rounds=over_rounds
    )
    return replace(made, claims=tuple(check_claims(table.claims, made.rows, made.columns, entries, lower)))


def metrics_by_run(suite: Suite, cells: Sequence[Cell]) -> dict[str, list[TableMetric]]:
    """What is read off each run, by its name."""
    found: dict[str, list[TableMetric]] = {}
    for cell in cells:
        found.setdefault(cell.run.name, []).extend(_readings(suite.table(cell.table), cell.column).values())
    return found


def _readings(table: TableSpec, name: str) -> dict[str, TableMetric]:
    column = table.column(name)
    return {heading: TableMetric(shows, column.of, column.split) for heading, shows in table.shown(name).items()}


def _published(table: TableSpec, row: str, column: str, place: int) -> float | None:
    given = (table.published.get(row) or {}).get(column)
    found = given[place] if isinstance(given, list) and place < len(given) else given
    return float(found) if isinstance(found, int | float) else None


def _entry(cells: Sequence[Cell], reading: TableMetric, store: RunStore, published: float | None) -> TableEntry:
    values, runs, why = [], [], "not run"
    for cell in cells:
        summary = store.summary(cell.run.name)
        value = reading.value(summary, store.run_folder(cell.run.name)) if summary else None
        if value is not None:
            values.append(value)
            runs.append(cell.run.name)
        else:
            why = "not reached" if summary else store.failure(cell.run.name) or why
    return TableEntry(
        tuple(values), tuple(runs), published, missing="" if len(values) == len(cells) else why, asked=len(cells)
    )


def _average(
    table: TableSpec, row: Mapping[str, TableEntry], parts: Sequence[str], published: float | None
) -> TableEntry:
    """The mean over columns, seed by seed; a column of several numbers counts once."""
    groups = []
    for part in parts:
        names = [part] if part in row else [n for n in row if part in table.columns and n in _readings(table, part)]
        groups.append([row[n].values for n in names])
    seeds = {len(values) for group in groups for values in group}
    if len(seeds) != 1 or seeds == {0}:
        return TableEntry(published=published, missing="some are missing")
    by_seed = np.mean([np.mean(group, axis=0) for group in groups], axis=0)
    return TableEntry(tuple(by_seed.tolist()), published=published)


def _rank(
    entries: dict[str, dict[str, TableEntry]],
    methods: Sequence[str],
    column: str,
    reading: TableMetric | None,
    store: RunStore,
) -> None:
    """Mark the best of the methods, and how sure the others are to be worse."""
    scored = {m: entries[m][column].mean for m in methods if entries[m][column].mean is not None}
    if len(scored) < 2 or (
        reading is not None and reading.shows == "seconds"
    ):  # of runs that share a machine, and warm it up
        return
    sign = -1 if reading is not None and reading.lower_is_better else 1
    best = max(scored, key=lambda m: sign * (scored[m] or 0.0))
    for method, mean in scored.items():
        entries[method][column] = replace(entries[method][column], best=mean == scored[best])
    items = _items({m: entries[m][column] for m in scored}, reading, store) if reading is not None else {}
    for method in items:
        if method != best and reading is not None:
            p = _p(items[best], items[method], reading.by_client)
            entries[method][column] = replace(entries[method][column], p=p)


class EntrySamples(NamedTuple):
    """The items of each run of an entry, and which corpus they are of."""

    samples: list[ExampleScores]
    corpora: list[str | None]


def _items(entries: Mapping[str, TableEntry], reading: TableMetric, store: RunStore) -> dict[str, EntrySamples]:
    """The items of every entry of a column, of all as scores or of all as tallies. Nothing if some number follows from
    neither, or if not all were judged on the same ones: a column is tested as a whole, or not."""
    found = {
        name: [reading.items(store.run_folder(run), value) for run, value in zip(entry.runs, entry.values, strict=True)]
        for name, entry in entries.items()
    }
    corpora = {name: [(store.summary(run) or {}).get("items") for run in entry.runs] for name, entry in entries.items()}
    for way in (0, 1):
        samples = {name: [pair[way] for pair in pairs] for name, pairs in found.items()}
        alike = {tuple(corpora[name] + [s.rows.shape for s in each if s]) for name, each in samples.items()}
        if len(alike) == 1 and all(s for each in samples.values() for s in each):
            return {name: EntrySamples([s for s in each if s], corpora[name]) for name, each in samples.items()}
    return {}


def _p(best: EntrySamples, other: EntrySamples, by_client: bool) -> float:
    """Paired over test items. Seeds judged on the same items are taken together: one text judged thrice is still one text.
    Where they are the clients' own, who has which under which seed is not known; then they count as if all agreed."""
    statistic, seeds = best.samples[0].statistic, len(best.samples)
    same = len(set(best.corpora)) == 1 and len({sample.rows.shape for sample in best.samples}) == 1
    if same and not by_client:
        first, second = (np.concatenate([s.rows for s in side.samples], axis=1) for side in (best, other))
        if statistic is None:
            return paired_bootstrap(first.mean(1), second.mean(1)).p
        return paired_bootstrap(first, second, statistic=_over_seeds(statistic, seeds)).p
    first, second = (np.concatenate([s.rows for s in side.samples]) for side in (best, other))
    groups = np.cumsum([0, *(int(s.owners.max()) + 1 for s in best.samples)])
    strata = np.concatenate([s.owners + groups[i] for i, s in enumerate(best.samples)])
    repeats = seeds // len(set(best.corpora))
    return paired_bootstrap(first, second, strata=strata, statistic=statistic, repeats=repeats).p


def _over_seeds(statistic: Statistic, seeds: int) -> Statistic:
    """The mean of what the statistic makes of each seed's columns."""
    return lambda means: np.mean([statistic(part) for part in np.split(means, seeds, axis=-1)], axis=0)
