"""Rank the methods of a column, and test their differences over seeds and test examples.

The best method is chosen by looking at all of them, so that every pair of methods is a comparison: Holm's correction
counts them all. Eight equal methods with five seeds then differ in 2 to 5 % of the columns. If only the comparisons with
the best were counted, it would be 7 to 9 %.

Bounds, such as isolated clients, are not ranked. Each is compared with the best method, too. That method was also chosen by
looking, so that all pairs of a bound and a method are counted, apart from the pairs of methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from motet.benchmark.run_store import RunStore
from motet.benchmark.table_entry import TableEntry
from motet.benchmark.table_metrics import TableMetric
from motet.report.client_bootstrap import client_interval, compare_clients
from motet.report.paired_scores import PairedRuns, RunScores, SharedUnits, compare_methods, score_run
from motet.report.significance import Comparison, holm

Entries = dict[str, dict[str, TableEntry]]  # by row and column


def rank_column(
    entries: Entries, methods: Sequence[str], column: str, metric: TableMetric | None, store: RunStore
) -> None:
    """Compare the methods of a column with the best one. With too few seeds, no method is called the best.

    Methods that have all seeds are compared among themselves; one that lacks some does not prevent this. Traffic is compared
    with the seeds that there are.
    """
    ranked = {m: entries[m][column] for m in methods if entries[m][column].mean is not None}
    is_traffic = metric is not None and metric.is_traffic  # counted, not estimated
    complete = {m: entry for m, entry in ranked.items() if not entry.is_partial}
    ranked = complete if len(complete) > 1 and not is_traffic else ranked
    _add_intervals(entries, column, metric, store)
    # Runs that share a machine disturb each other, so wall times are not ranked.
    if len(ranked) < 2 or (metric is not None and metric.spec.kind == "seconds"):
        return
    means = {name: entry.mean or 0.0 for name, entry in ranked.items()}
    sign = -1 if metric is not None and metric.lower_is_better else 1
    best = max(means, key=lambda m: sign * means[m])
    comparisons = {} if is_traffic else compare_entries(ranked, combinations(ranked, 2), metric, store)
    may_rank = is_traffic or any(c.is_about_methods for c in comparisons.values())
    adjusted = dict(zip(comparisons, holm([c.p for c in comparisons.values()]), strict=True))
    for method, mean in means.items():
        entry = replace(entries[method][column], is_best=may_rank and mean == means[best])
        if (method, best) in comparisons:
            pair = (method, best)
            entry = replace(entry, comparison=comparisons[pair], p_value=adjusted[pair], compared_with=best)
        elif (best, method) in comparisons:
            pair = (best, method)
            flipped = flip(comparisons[pair])
            entry = replace(entry, comparison=flipped, p_value=adjusted[pair], compared_with=best)
        entries[method][column] = entry
    if not is_traffic:
        _compare_bounds(entries, ranked, best, column, metric, store)


def _compare_bounds(
    entries: Entries,
    ranked: Mapping[str, TableEntry],
    best: str,
    column: str,
    metric: TableMetric | None,
    store: RunStore,
) -> None:
    """Compare the bounds of a column with the best method."""
    comparisons: dict[tuple[str, str], Comparison] = {}
    for bound in entries:
        if (entry := entries[bound][column]).is_bound:
            pairs = [(bound, method) for method in ranked]
            comparisons |= compare_entries({**ranked, bound: entry}, pairs, metric, store)
    adjusted = dict(zip(comparisons, holm([c.p for c in comparisons.values()]), strict=True))
    for (bound, method), comparison in comparisons.items():
        if method == best:
            p_value = adjusted[bound, method]
            entry = replace(entries[bound][column], comparison=comparison, p_value=p_value, compared_with=best)
            entries[bound][column] = entry


def flip(comparison: Comparison) -> Comparison:
    """Return the comparison of second − first."""
    # 0 − x instead of −x: a difference of zero stays a positive zero
    low, high = 0.0 - comparison.high, 0.0 - comparison.low
    return replace(comparison, difference=0.0 - comparison.difference, low=low, high=high)


def compare_entries(
    entries: Mapping[str, TableEntry],
    pairs: Iterable[tuple[str, str]],
    metric: TableMetric | None,
    store: RunStore,
) -> dict[tuple[str, str], Comparison]:
    """Compare pairs of entries. Empty if they do not have the same seeds and corpus, or too few seeds and no examples.

    Statistics of clients need the same clients, too: those of another partition have the same names and other texts.
    """
    if len({len(entry.values) for entry in entries.values()}) != 1 or any(e.is_partial for e in entries.values()):
        return {}
    if not have_one_corpus((run for entry in entries.values() for run in entry.runs), store):
        return {}
    comparisons: dict[tuple[str, str], Comparison | None] = {}
    if metric is not None and (statistic := metric.client_statistic):
        if len({tuple(_partition_digests(entry, store)) for entry in entries.values()}) > 1:
            return {}
        scores = {name: _client_scores(entry, metric, store) for name, entry in entries.items()}
        shared = all(_shared_units(entry, store).clients for entry in entries.values())
        for a, b in pairs:
            comparisons[a, b] = compare_clients(scores[a], scores[b], statistic, shared)
    else:
        column = ColumnScores.load(entries, metric, store)
        for a, b in pairs:
            comparisons[a, b] = compare_methods(column.runs[a], column.runs[b], column.shared)
    return {pair: comparison for pair, comparison in comparisons.items() if comparison is not None}


def have_one_corpus(runs: Iterable[str], store: RunStore) -> bool:
    """Return whether all finished runs have the same task and corpora. Scores on other texts cannot be compared."""
    summaries = [summary for run in runs if (summary := store.summary(run)) is not None]
    return len({(summary["task"], summary["dataset"]) for summary in summaries}) < 2


def pair_entries(first: TableEntry, second: TableEntry, metric: TableMetric | None, store: RunStore) -> PairedRuns:
    """Return the differences first − second of two entries with the same seeds."""
    has_mean = metric is None or metric.client_statistic is None  # else examples do not give the number
    column = ColumnScores.load({"first": first, "second": second}, metric if has_mean else None, store)
    return PairedRuns.subtract(column.runs["first"], column.runs["second"], column.shared)


def _add_intervals(entries: Entries, column: str, metric: TableMetric | None, store: RunStore) -> None:
    """Add intervals to numbers with all seeds. With fewer, they might vary over clients alone, unlike the column's others."""
    if metric is None or metric.client_statistic is None:
        return
    for row in entries:
        entry = entries[row][column]
        if not entry.values or entry.is_partial:
            continue
        scores, shared = _client_scores(entry, metric, store), _shared_units(entry, store)
        interval = client_interval(scores, metric.client_statistic, shared.clients)
        entries[row][column] = replace(entry, interval=interval)


def _client_scores(entry: TableEntry, metric: TableMetric, store: RunStore) -> list[np.ndarray]:
    return [metric.read_client_scores(store.summary(run) or {}, store.run_folder(run)) for run in entry.runs]


def _shared_units(entry: TableEntry, store: RunStore) -> SharedUnits:
    """Return what the runs of an entry share: test examples, and clients with the same data."""
    partitions = set(_partition_digests(entry, store))
    return SharedUnits(
        examples=len({(store.summary(run) or {}).get("items") for run in entry.runs}) == 1,
        clients=len(partitions) == 1 and None not in partitions,
    )


def _partition_digests(entry: TableEntry, store: RunStore) -> list[str | None]:
    """Return a digest of the clients of each run."""
    return [((store.summary(run) or {}).get("partition") or {}).get("digest") for run in entry.runs]


@dataclass(frozen=True)
class ColumnScores:
    """The scores of every run of a column, by method."""

    runs: Mapping[str, list[RunScores]]
    shared: SharedUnits

    @staticmethod
    def load(entries: Mapping[str, TableEntry], metric: TableMetric | None, store: RunStore) -> ColumnScores:
        """Load per-example scores for all entries, or sufficient statistics for all entries.

        If a number follows from neither, or the entries were not evaluated on the same examples of the same clients, the
        runs have only their numbers. A column is tested in one way.
        """
        units = {name: _shared_units(entry, store) for name, entry in entries.items()}
        shared = SharedUnits(
            examples=all(u.examples for u in units.values()),
            clients=metric is not None and metric.is_per_client and all(u.clients for u in units.values()),
        )
        for choice in (0, 1) if metric is not None else ():  # scores, then sufficient statistics
            runs = _load_runs(entries, metric, store, choice) if metric is not None else None
            if runs is not None:
                return ColumnScores(runs, shared)
        return ColumnScores({name: [RunScores(value) for value in e.values] for name, e in entries.items()}, shared)


def _load_runs(
    entries: Mapping[str, TableEntry], metric: TableMetric, store: RunStore, choice: int
) -> dict[str, list[RunScores]] | None:
    runs: dict[str, list[RunScores]] = {}
    signatures = set()
    for name, entry in entries.items():
        runs[name], signature = [], []
        digests = _partition_digests(entry, store) if metric.is_per_client else [None] * len(entry.runs)
        for run, value, digest in zip(entry.runs, entry.values, digests, strict=True):
            examples = metric.read_examples(store.run_folder(run), value)[choice]
            if examples is None:
                return None
            signature.append(((store.summary(run) or {}).get("items"), digest, examples.rows.shape))
            rows, owners = examples.rows, examples.owners
            runs[name].append(score_run(value, rows, owners, examples.statistic, metric.scale))
        signatures.add(tuple(signature))
    return runs if len(signatures) == 1 else None
