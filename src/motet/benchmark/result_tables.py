"""Result tables: mean and standard deviation over seeds, the best method, significance tests and published numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from motet.benchmark.cells import Cell
from motet.benchmark.claims import ClaimResult, check_claims
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite, TableSpec
from motet.benchmark.table_metrics import PRIMARY_METRIC, ExampleScores, TableMetric
from motet.experiment.commands.run_summary import describe_metrics
from motet.report.significance import Statistic, paired_bootstrap

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class TableEntry:
    """A number of a table, with one value per seed. `p_value` compares it with the best entry of its column."""

    values: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()
    published: float | None = None
    is_best: bool = False
    p_value: float | None = None
    missing_reason: str = ""  # why some seeds have no value
    expected: int = 0  # number of seeds

    @property
    def is_partial(self) -> bool:
        """Whether some of the seeds are missing."""
        return 0 < len(self.values) < self.expected

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_tied(self) -> bool:
        """Whether the entry is not the best, but not significantly worse either."""
        return not self.is_best and self.p_value is not None and self.p_value >= SIGNIFICANCE_LEVEL


Entries = dict[str, dict[str, TableEntry]]  # by row and column


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
    over_rounds: bool = False  # all columns show the same metric, after different rounds

    def is_untested(self, column: str) -> bool:
        """Return whether the column is ranked without a significance test, because per-example scores do not give it."""
        entries = [self.entries[row][column] for row in self.rows]
        is_ranked = column not in self.lower_is_better and any(e.is_best for e in entries)
        return is_ranked and all(e.p_value is None for e in entries)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for results.json and the report page."""
        cells = {
            row: {
                column: {
                    **asdict(entry),
                    "mean": entry.mean,
                    "std": entry.std,
                    "is_tied": entry.is_tied,
                    "is_partial": entry.is_partial,
                }
                for column, entry in entries.items()
            }
            for row, entries in self.entries.items()
        }
        return {**{k: v for k, v in asdict(self).items() if k != "entries"}, "cells": cells}


def build_tables(suite: Suite, cells: Sequence[Cell], store: RunStore) -> list[ResultTable]:
    """Build every table that has cells."""
    names = dict.fromkeys(cell.table for cell in cells)
    return [_build_table(suite, name, [c for c in cells if c.table == name], store) for name in names]


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
    metrics = {heading: m for column in columns for heading, m in _column_metrics(spec, column).items()}
    entries = {row: _row_entries(spec, row, columns, cells, store) for row in rows}
    headings = tuple(entries[rows[0]])
    for heading in headings:
        _rank_column(entries, methods, heading, metrics.get(heading), store)
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
        claims=tuple(check_claims(spec.claims, methods, headings, entries, lower_is_better)),
        over_rounds=is_over_rounds and len({(m.metric_over_rounds, m.clients) for m in metrics.values()}) == 1,
    )


def _describe_metrics(cells: Sequence[Cell], metrics: Iterable[TableMetric], store: RunStore) -> str:
    """Return how the metrics of a table were computed, as the first finished run says."""
    summary = next((s for cell in cells if (s := store.summary(cell.run.name))), {})
    names = {metric.spec.metric for metric in metrics if metric.spec.metric}
    return describe_metrics(summary, {summary.get("headline", "") if n == PRIMARY_METRIC else n for n in names})


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
        if value is not None:
            values.append(value)
            runs.append(cell.run.name)
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
    groups = []
    for part in parts:
        headings = [part] if part in row else [h for h in row if part in spec.columns and h in spec.metrics(part)]
        groups.append([row[heading].values for heading in headings])
    seed_counts = {len(values) for group in groups for values in group}
    if len(seed_counts) != 1 or seed_counts == {0}:
        return TableEntry(published=published, missing_reason="some columns are missing")
    by_seed = np.mean([np.mean(group, axis=0) for group in groups], axis=0)
    return TableEntry(values=tuple(by_seed.tolist()), published=published)


def _rank_column(
    entries: Entries, methods: Sequence[str], column: str, metric: TableMetric | None, store: RunStore
) -> None:
    """Mark the best method of a column, and test the others against it."""
    means = {m: mean for m in methods if (mean := entries[m][column].mean) is not None}
    # Runs that share a machine disturb each other, so wall times are not ranked.
    if len(means) < 2 or (metric is not None and metric.spec.kind == "seconds"):
        return
    sign = -1 if metric is not None and metric.lower_is_better else 1
    best = max(means, key=lambda m: sign * means[m])
    for method, mean in means.items():
        entries[method][column] = replace(entries[method][column], is_best=mean == means[best])
    if metric is None:
        return
    samples = _load_samples({m: entries[m][column] for m in means}, metric, store)
    for method in samples:
        if method != best:
            p_value = _test_difference(samples[best], samples[method], metric.is_per_client)
            entries[method][column] = replace(entries[method][column], p_value=p_value)


class EntrySamples(NamedTuple):
    """The per-example scores of each run of an entry, and the identity of the test examples."""

    samples: list[ExampleScores]
    test_sets: list[str | None]


def _load_samples(entries: Mapping[str, TableEntry], metric: TableMetric, store: RunStore) -> dict[str, EntrySamples]:
    """Load the per-example scores of a column: scores for all entries, or sufficient statistics for all entries.

    Empty if a number follows from neither, or if the entries were not evaluated on the same examples. A column is
    tested as a whole or not at all.
    """
    pairs = {
        name: [
            metric.read_examples(store.run_folder(run), value)
            for run, value in zip(entry.runs, entry.values, strict=True)
        ]
        for name, entry in entries.items()
    }
    test_sets = {
        name: [(store.summary(run) or {}).get("items") for run in entry.runs] for name, entry in entries.items()
    }
    for choice in (0, 1):  # scores, then sufficient statistics
        samples = {name: [pair[choice] for pair in entry_pairs] for name, entry_pairs in pairs.items()}
        signatures = {tuple(test_sets[name] + [s.rows.shape for s in each if s]) for name, each in samples.items()}
        if len(signatures) == 1 and all(s for each in samples.values() for s in each):
            return {
                name: EntrySamples(samples=[s for s in each if s], test_sets=test_sets[name])
                for name, each in samples.items()
            }
    return {}


def _test_difference(best: EntrySamples, other: EntrySamples, is_per_client: bool) -> float:
    """Return the p-value of a paired bootstrap over test examples.

    Seeds that were evaluated on the same examples are averaged per example, since one text that is evaluated three
    times is still one text. For the clients' test sets it is unknown which client has which example under which seed;
    there, repeated examples count as if they all agreed.
    """
    statistic, seeds = best.samples[0].statistic, len(best.samples)
    has_same_examples = len(set(best.test_sets)) == 1 and len({sample.rows.shape for sample in best.samples}) == 1
    if has_same_examples and not is_per_client:
        first, second = (np.concatenate([s.rows for s in side.samples], axis=1) for side in (best, other))
        if statistic is None:
            return paired_bootstrap(first.mean(1), second.mean(1)).p
        return paired_bootstrap(first, second, statistic=_mean_over_seeds(statistic, seeds)).p
    first, second = (np.concatenate([s.rows for s in side.samples]) for side in (best, other))
    offsets = np.cumsum([0, *(int(s.owners.max()) + 1 for s in best.samples)])
    strata = np.concatenate([s.owners + offsets[i] for i, s in enumerate(best.samples)])
    repeats = seeds // len(set(best.test_sets))
    return paired_bootstrap(first, second, strata=strata, statistic=statistic, repeats=repeats).p


def _mean_over_seeds(statistic: Statistic, seeds: int) -> Statistic:
    """Return a statistic over the columns of all seeds, side by side: the mean of the statistic over the seeds."""
    return lambda means, count: np.mean([statistic(part, count) for part in np.split(means, seeds, axis=-1)], axis=0)
