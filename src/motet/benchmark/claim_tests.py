"""Check claims against the numbers of a table: a difference with its interval, and one of three verdicts.

A claim about several columns is about their mean. A corpus counts once, however many of its partitions and metrics the
table shows. With `*` for the rows, a claim is about every row: it is shown if all rows show it, and contradicted if one
row contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from motet.benchmark.claims import CellKey, Claim, Verdict
from motet.benchmark.column_tests import pair_entries
from motet.benchmark.run_store import RunStore
from motet.benchmark.table_entry import TableEntry, format_interval
from motet.benchmark.table_metrics import TableMetric
from motet.report.paired_scores import PairedRuns
from motet.report.significance import MIN_SEEDS, Comparison, Estimate, compare_seeds

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not shown", "shown")


@dataclass(frozen=True)
class ClaimResult:
    """The verdict on a claim. `lead` is by how much the left side is better than the right side, over all its cells.

    `exceptions` lists the cells whose means alone do not agree with the claim.
    """

    claim: str
    verdict: Verdict = "not shown"
    lead: Comparison | None = None
    compared: int = 0  # pairs of cells
    corpora: int = 0
    exceptions: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the verdict with its difference, in one line."""
        if self.lead is None:
            return f"{self.verdict}: {self.claim} (no difference could be tested)"
        reason = "" if self.lead.is_about_methods else f"; these trained models only, {MIN_SEEDS} seeds are needed"
        corpora = "" if self.corpora == 1 else f", mean over {self.corpora} corpora"
        exceptions = f". Means that disagree: {'; '.join(self.exceptions)}" if self.exceptions else ""
        return f"{self.verdict}: {self.claim}: {format_interval(self.lead)}{corpora}{reason}{exceptions}"


@dataclass(frozen=True)
class ClaimTable:
    """A table as claims see it: its entries, the metric and the corpus of each column, and the parts of averages."""

    rows: Sequence[str]
    entries: Mapping[str, Mapping[str, TableEntry]]
    metrics: Mapping[str, TableMetric]
    corpora: Mapping[str, str]
    averages: Mapping[str, Sequence[str]]
    store: RunStore

    @property
    def columns(self) -> list[str]:
        """The columns that a claim without a column is about: scores. Megabytes, losses and fairness are other things."""
        return [column for column, metric in self.metrics.items() if metric.is_score]

    def check(self, claims: Sequence[str]) -> Iterator[ClaimResult]:
        """Check every claim. Cells that were not run are skipped."""
        for claim in map(Claim.parse, claims):
            by_rows: dict[tuple[str, str], list[tuple[CellKey, CellKey]]] = {}
            for left, right in claim.cell_pairs(self.rows, self.columns):
                pairs = [pair for pair in self._expand_averages(left, right) if self._has_numbers(*pair)]
                if pairs:
                    by_rows.setdefault((left.row, right.row), []).extend(pairs)
            results = [self._check_rows(claim, pairs) for pairs in by_rows.values()]
            yield _join_results(claim, results)

    def _expand_averages(self, left: CellKey, right: CellKey) -> list[tuple[CellKey, CellKey]]:
        """Return the cells whose average two cells are, so that the test knows their examples."""
        if left.column != right.column or left.column not in self.averages:
            return [(left, right)]
        return [(CellKey(left.row, part), CellKey(right.row, part)) for part in self.averages[left.column]]

    def _has_numbers(self, left: CellKey, right: CellKey) -> bool:
        entries = [self.entries.get(key.row, {}).get(key.column, TableEntry()) for key in (left, right)]
        return entries[0].mean is not None and len(entries[0].values) == len(entries[1].values)

    def _check_rows(self, claim: Claim, pairs: Sequence[tuple[CellKey, CellKey]]) -> ClaimResult:
        """Check a claim about two rows."""
        by_corpus: dict[str, list[PairedRuns]] = {}
        exceptions = []
        for left, right in pairs:
            runs = self._pair_runs(left, right)
            by_corpus.setdefault(self.corpora.get(left.column, left.column), []).append(runs)
            lead = float(runs.values.mean())
            if claim.judge(lead, lead) != "shown":
                exceptions.append(self._describe_pair(left, right))
        is_counted = all(pair[0].column in self.metrics and self.metrics[pair[0].column].is_traffic for pair in pairs)
        lead_test = _combine(list(by_corpus.values()), is_counted)
        is_conclusive = lead_test is not None and lead_test.is_about_methods
        return ClaimResult(
            claim=claim.text,
            verdict=claim.judge(lead_test.low, lead_test.high) if lead_test and is_conclusive else "not shown",
            lead=lead_test,
            compared=len(pairs),
            corpora=len(by_corpus),
            exceptions=tuple(exceptions),
        )

    def _pair_runs(self, left: CellKey, right: CellKey) -> PairedRuns:
        """Return the leads of the left cell over the right cell, seed by seed."""
        metrics = [self.metrics.get(key.column) for key in (left, right)]
        metric = metrics[0] if metrics[0] == metrics[1] else None
        first, second = (self.entries[key.row][key.column] for key in (left, right))
        if metrics[0] is not None and metrics[0].lower_is_better:
            first, second = second, first
        return pair_entries(first, second, metric, self.store)

    def _describe_pair(self, left: CellKey, right: CellKey) -> str:
        means = [self.entries[key.row][key.column].mean for key in (left, right)]
        where = left.column if left.column == right.column else f"{left.column}, {right.column}"
        return f"{left.row} {means[0]:.1f}, {right.row} {means[1]:.1f} ({where})"


def _combine(corpora: Sequence[Sequence[PairedRuns]], is_counted: bool) -> Comparison | None:
    """Return the mean lead over corpora. The columns of a corpus share its test examples, and the corpora share none."""
    runs = [pair for pairs in corpora for pair in pairs]
    if len({len(pair.values) for pair in runs}) != 1:
        return None
    values = np.mean([np.mean([pair.values for pair in pairs], axis=0) for pairs in corpora], axis=0)
    if len(values) >= MIN_SEEDS:
        deviations = [np.mean([float(p.compare_over_seeds().fixed) ** 0.5 for p in pairs]) for pairs in corpora]
        has_examples = any(pair.examples is not None for pair in runs)
        estimate = compare_seeds(values, float(np.square(deviations).sum()) / len(corpora) ** 2)
        return estimate.compare("seeds", *(("examples",) if has_examples else ()))
    if is_counted:
        zero = np.zeros(())
        return Estimate(values.mean(), zero, np.ones(()), zero).compare("seeds")
    variances = [pair.model_variance() for pair in runs]
    if any(variance is None for variance in variances):
        return None
    deviations = [np.mean([(p.model_variance() or 0.0) ** 0.5 for p in pairs]) for pairs in corpora]
    variance = np.asarray(np.square(deviations).sum() / len(corpora) ** 2)
    degrees = float(sum(len(p.examples[0]) for p in runs if p.examples is not None) - 1)
    return Estimate(values.mean(), variance, np.asarray(degrees), variance).compare("examples")


def _join_results(claim: Claim, results: Sequence[ClaimResult]) -> ClaimResult:
    """Join the results of all rows: the worst verdict, with the lead of the row that has it and the lowest lead."""
    if not results:
        return ClaimResult(claim.text)

    def order(result: ClaimResult) -> tuple[int, float]:
        if result.lead is None:
            return 1, 0.0
        size = -abs(result.lead.difference) if claim.sign == "≈" else result.lead.difference
        return _WORST_FIRST.index(result.verdict), size

    worst = min(results, key=order)
    return ClaimResult(
        claim=claim.text,
        verdict=worst.verdict,
        lead=worst.lead,
        compared=sum(result.compared for result in results),
        corpora=worst.corpora,
        exceptions=tuple(text for result in results for text in result.exceptions),
    )
