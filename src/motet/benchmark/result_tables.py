"""Result tables: mean and standard deviation over seeds, the best method, differences with intervals, published numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from motet.benchmark.cells import Cell
from motet.benchmark.claim_significance import ClaimResult, ClaimTable
from motet.benchmark.column_significance import Entries, rank_column
from motet.benchmark.row_caveats import find_caveats
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite, TableSpec
from motet.benchmark.suite_search import TunedRow, describe_unsearched
from motet.benchmark.table_entry import TableEntry, describe_difference
from motet.benchmark.table_metrics import PRIMARY_METRIC, TableMetric
from motet.experiment.commands.run_summary import describe_metrics


@dataclass(frozen=True)
class ResultTable:
    """A table with its numbers. `rows` are ranked, `bounds` are not."""

    name: str
    title: str
    note: str
    rows: tuple[str, ...]
    bounds: tuple[str, ...]
    columns: tuple[str, ...]
    lower_is_better: tuple[str, ...]  # columns in which the lowest number is the best
    entries: Mapping[str, Mapping[str, TableEntry]]
    claims: tuple[ClaimResult, ...] = field(default=())
    metric_details: str = ""  # how the metrics were computed: tokenizer, stemmer, script
    software: str = ""  # the version and commit of Motet that most runs of the table were made with
    tuned: tuple[TunedRow, ...] = ()  # settings that were chosen on the development set
    over_rounds: bool = False  # all columns show the same metric, after different rounds
    axis_labels: Mapping[str, str] = field(default_factory=dict)  # the metric and unit of each column
    caveats: tuple[str, ...] = ()  # what a reader must know before comparing the rows

    def is_without_examples(self, column: str) -> bool:
        """Return whether the examples of the test set play no part in the test of a column."""
        comparisons = [entry.comparison for row in self.rows if (entry := self.entries[row][column]).comparison]
        return any(c.varied == ("seeds",) for c in comparisons if c)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for results.json and the report page."""
        claims = [{**asdict(claim), "text": claim.describe()} for claim in self.claims]
        cells = {
            row: {
                column: {
                    **asdict(entry),
                    "mean": entry.mean,
                    "std": entry.std,
                    "is_tied": entry.is_tied,
                    "is_partial": entry.is_partial,
                    "difference": describe_difference(entry),
                }
                for column, entry in entries.items()
            }
            for row, entries in self.entries.items()
        }
        values = {k: v for k, v in asdict(self).items() if k != "entries"}
        return {**values, "claims": claims, "cells": cells}


def build_tables(suite: Suite, cells: Sequence[Cell], store: RunStore) -> list[ResultTable]:
    """Build every table that has cells."""
    names = dict.fromkeys(cell.table for cell in cells)
    return [_build_table(suite, name, [c for c in cells if c.table == name], store) for name in names]


def add_search(table: ResultTable, tuned: Sequence[TunedRow]) -> ResultTable:
    """Return the table with the settings that a search has chosen, and a caveat if it left methods out."""
    caveats = [text for text in (*table.caveats, describe_unsearched(tuned, table.rows)) if text]
    return replace(table, tuned=tuple(tuned), caveats=tuple(caveats))


def metrics_by_run(suite: Suite, cells: Sequence[Cell]) -> dict[str, list[TableMetric]]:
    """Return the metrics that tables read from each run, by its name."""
    metrics: dict[str, list[TableMetric]] = {}
    for cell in cells:
        metrics.setdefault(cell.run.name, []).extend(_column_metrics(suite.table(cell.table), cell.column).values())
    return metrics


def _build_table(suite: Suite, name: str, cells: Sequence[Cell], store: RunStore) -> ResultTable:
    spec = suite.table(name)
    rows, columns = list(dict.fromkeys(c.row for c in cells)), list(dict.fromkeys(c.column for c in cells))
    bounds = tuple(row for row in rows if row in suite.bounds_for(spec))
    methods = tuple(row for row in rows if row not in bounds)
    entries = {row: _row_entries(spec, row, columns, cells, store) for row in rows}
    for bound in bounds:
        entries[bound] = {heading: replace(entry, is_bound=True) for heading, entry in entries[bound].items()}
    headings = tuple(entries[rows[0]])
    metrics = {heading: metric for heading, metric in heading_metrics(spec).items() if heading in headings}
    for heading in headings:
        rank_column(entries, methods, heading, metrics.get(heading), store)
    software = _mark_outdated(entries, cells, store)
    lower_is_better = tuple(h for h in headings if h in metrics and metrics[h].lower_is_better)
    is_over_rounds = all(m.metric_over_rounds for m in metrics.values())
    return ResultTable(
        name=name,
        title=spec.title,
        note=spec.note,
        rows=methods,
        bounds=bounds,
        columns=headings,
        lower_is_better=lower_is_better,
        entries=entries,
        metric_details=_describe_metrics(cells, metrics.values(), store),
        claims=tuple(_claim_table(suite, cells, methods, metrics, entries, store).check(spec.claims)),
        software=software,
        over_rounds=is_over_rounds and len({(m.metric_over_rounds, m.clients) for m in metrics.values()}) == 1,
        axis_labels=_axis_labels(spec, headings),
        caveats=find_caveats(cells, methods, {c: list(_column_metrics(spec, c).values()) for c in columns}, store),
    )


def _axis_labels(spec: TableSpec, headings: Sequence[str]) -> dict[str, str]:
    """Return what each column shows. An average over different metrics has no label."""
    labels = {heading: metric.axis_label for heading, metric in heading_metrics(spec).items()}
    for average, parts in spec.average.items():
        part_labels = {labels[h] for part in parts for h in ([part] if part in labels else spec.metrics(part))}
        labels[average] = part_labels.pop() if len(part_labels) == 1 else ""
    return {heading: labels[heading] for heading in headings}


def _mark_outdated(entries: Entries, cells: Sequence[Cell], store: RunStore) -> str:
    """Mark the entries that are not from the version of most runs. Return that version; empty without runs."""
    software = {cell.run.name: store.software(cell.run.name) for cell in cells if store.is_done(cell.run.name)}
    if not software:
        return ""
    current = Counter(software.values()).most_common(1)[0][0]
    for row in entries.values():
        for column, entry in row.items():
            is_outdated = any(software.get(run, current) != current for run in entry.runs)
            row[column] = replace(entry, is_outdated=is_outdated)
    return current


def _claim_table(
    suite: Suite,
    cells: Sequence[Cell],
    methods: Sequence[str],
    metrics: Mapping[str, TableMetric],
    entries: Entries,
    store: RunStore,
) -> ClaimTable:
    spec = suite.table(cells[0].table)
    corpora: dict[str, str] = {}
    for cell in cells:
        names = dict.fromkeys(group.data.name or "own data" for group in cell.run.config.client_groups)
        clients = spec.column(cell.column).clients  # a column of some clients is about their part of the corpora
        corpora |= {h: f"{', '.join(names)} {clients or ''}" for h in _column_metrics(spec, cell.column)}
    averages = {
        average: [heading for part in parts for heading in _average_headings(spec, entries[methods[0]], part)]
        for average, parts in spec.average.items()
        if methods and average in entries[methods[0]]
    }
    kinds = {
        kind: [heading for column in columns if column in spec.columns for heading in spec.metrics(column)]
        for kind, columns in suite.overview.items()
    }
    return ClaimTable(
        rows=methods,
        entries=entries,
        metrics=metrics,
        corpora=corpora,
        averages=averages,
        store=store,
        kinds=kinds,
    )


def _average_headings(spec: TableSpec, row: Mapping[str, TableEntry], part: str) -> list[str]:
    """Return the headings of a part of an average: itself, or all metrics of a column."""
    return [part] if part in row else [h for h in row if part in spec.columns and h in spec.metrics(part)]


def _describe_metrics(cells: Sequence[Cell], metrics: Iterable[TableMetric], store: RunStore) -> str:
    """Return how the metrics of a table were computed, as the first finished run says."""
    summary = next((s for cell in cells if (s := store.summary(cell.run.name))), {})
    names = {metric.spec.metric for metric in metrics if metric.spec.metric}
    return describe_metrics(summary, {summary.get("primary_metric", "") if n == PRIMARY_METRIC else n for n in names})


def _row_entries(
    spec: TableSpec, row: str, columns: Sequence[str], cells: Sequence[Cell], store: RunStore
) -> dict[str, TableEntry]:
    entries: dict[str, TableEntry] = {}
    for column in columns:
        cells_here = [c for c in cells if (c.row, c.column) == (row, column)]
        for index, (heading, metric) in enumerate(_column_metrics(spec, column).items()):
            entries[heading] = _build_entry(cells_here, metric, store, _published_number(spec, row, column, index))
    for average, parts in spec.average.items():
        # An average over only some of its columns could not be compared with the paper's.
        if all(part in columns or part in entries for part in parts):
            entries[average] = _average_entry(spec, entries, parts, _published_number(spec, row, average, 0))
    return entries


def heading_metrics(spec: TableSpec) -> dict[str, TableMetric]:
    """Return the metric under each heading of a table; averages have none."""
    return {heading: metric for column in spec.columns for heading, metric in _column_metrics(spec, column).items()}


def _column_metrics(spec: TableSpec, name: str) -> dict[str, TableMetric]:
    column = spec.column(name)
    return {
        heading: TableMetric(shows=shows, clients=column.clients, split=column.split)
        for heading, shows in spec.metrics(name).items()
    }


def _published_number(spec: TableSpec, row: str, column: str, index: int) -> float | None:
    published = (spec.published.get(row) or {}).get(column)
    number = published[index] if isinstance(published, list) and index < len(published) else published
    return float(number) if isinstance(number, int | float) else None


def _build_entry(cells: Sequence[Cell], metric: TableMetric, store: RunStore, published: float | None) -> TableEntry:
    values, runs, reason = [], [], "not run"
    for cell in cells:
        summary = store.summary(cell.run.name)
        value = metric.read(summary, store.run_folder(cell.run.name)) if summary else None
        if value is not None and math.isfinite(value):
            values.append(value)
            runs.append(cell.run.name)
        elif value is not None:
            reason = f"the number is {value}"
        else:
            reason = "not reached" if summary else store.failure(cell.run.name) or reason
    return TableEntry(
        values=tuple(values),
        runs=tuple(runs),
        published=published,
        missing_reason="" if len(values) == len(cells) else reason,
        expected=len(cells),
    )


def _average_entry(
    spec: TableSpec, row: Mapping[str, TableEntry], parts: Sequence[str], published: float | None
) -> TableEntry:
    """Average over columns, seed by seed. A column with several numbers counts once."""
    groups = [[row[heading] for heading in _average_headings(spec, row, part)] for part in parts]
    entries = [entry for group in groups for entry in group]
    seed_counts = {len(entry.values) for entry in entries}
    if len(seed_counts) != 1 or seed_counts == {0}:
        return TableEntry(published=published, missing_reason="some columns are missing")
    by_seed = np.mean([np.mean([entry.values for entry in group], axis=0) for group in groups], axis=0)
    expected = max(entry.expected for entry in entries)
    return TableEntry(values=tuple(by_seed.tolist()), published=published, expected=expected)
