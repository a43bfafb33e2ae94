"""Check claims against the numbers of a table: a difference with its interval, and one of three verdicts.

A claim about several columns is about their mean. A corpus counts once, however many of its partitions and metrics the
table shows. With `*` for the rows, a claim is about every row: it is shown if all rows show it, and contradicted if one
row contradicts it. If the suite names kinds of settings, a claim that names no column is one claim for each kind: a method
that helps with label skew can harm with feature skew.

The more claims a table has, the more of them come out by chance. So the p-value of a verdict is corrected with Holm's
method for all tests of the table. It is the p-value of the lead's distance from where the verdict would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from motet.benchmark.claims import CellKey, Claim, Verdict
from motet.benchmark.column_significance import have_one_corpus, pair_entries
from motet.benchmark.run_store import RunStore
from motet.benchmark.table_entry import TableEntry, format_interval
from motet.benchmark.table_metrics import TableMetric
from motet.report.number_text import format_p_value
from motet.report.paired_scores import PairedRuns
from motet.report.significance import (
    MIN_SEEDS,
    ROUNDING_ERROR,
    SIGNIFICANCE_LEVEL,
    Comparison,
    Estimate,
    compare_counts,
    compare_models,
    compare_seeds,
    holm,
)

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not shown", "shown")


@dataclass(frozen=True)
class ClaimResult:
    """The verdict on a claim. `lead` is by how much the left side is better than the right side, over all its cells.

    `exceptions` lists the cells whose means alone disagree with the claim. Equal means do not.
    """

    claim: str
    verdict: Verdict = "not shown"
    lead: Comparison | None = None
    p_value: float | None = None  # of the verdict, corrected for all claims of the table
    compared: int = 0  # pairs of cells
    corpora: int = 0
    exceptions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # columns in which seeds are missing

    def describe(self) -> str:
        """Return the verdict with its difference, in one line."""
        if self.lead is None:
            return f"{self.verdict}: {self.claim} (no difference could be tested)"
        reason = "" if self.lead.is_about_methods else f"; these trained models only, {MIN_SEEDS} seeds are needed"
        p = "" if self.p_value is None else f", {format_p_value(self.p_value)}"
        corpora = "" if self.corpora == 1 else f", mean over {self.corpora} corpora"
        left_out = f"; without {', '.join(self.left_out)}, where seeds are missing" if self.left_out else ""
        exceptions = f". Means that disagree: {'; '.join(self.exceptions)}" if self.exceptions else ""
        return f"{self.verdict}: {self.claim}: {format_interval(self.lead)}{p}{corpora}{reason}{left_out}{exceptions}"


class Lead(NamedTuple):
    """An estimated lead, and over what it was taken to vary (see `Comparison`)."""

    estimate: Estimate
    varied: tuple[str, ...]

    def test(self, claim: Claim) -> float:
        """Return the p-value of the verdict on a claim."""
        verdict, distance = claim.judge(float(self.estimate.difference))
        if verdict == "not shown":
            return 1.0
        if self.estimate.variance == 0:  # a number without error, as traffic has
            return 0.0
        return float(self.estimate._replace(difference=np.asarray(distance)).p)


@dataclass(frozen=True)
class RowTest:
    """The test of a claim about two rows, over all pairs of their cells."""

    claim: Claim
    lead: Lead | None
    compared: int
    corpora: int
    exceptions: tuple[str, ...]

    @property
    def is_conclusive(self) -> bool:
        return self.lead is not None and "seeds" in self.lead.varied

    def conclude(self, p_value: float | None) -> ClaimResult:
        """Return the result. `p_value` is corrected; None if no verdict is possible."""
        is_significant = p_value is not None and p_value < SIGNIFICANCE_LEVEL
        lead = self.lead and self.lead.estimate.compare(*self.lead.varied)
        verdict = self.claim.judge(lead.difference).verdict if lead and is_significant else "not shown"
        return ClaimResult(
            claim=self.claim.text,
            verdict=verdict,
            lead=lead,
            p_value=p_value,
            compared=self.compared,
            corpora=self.corpora,
            exceptions=self.exceptions,
        )


@dataclass(frozen=True)
class ClaimTable:
    """A table as claims see it: its entries, the metric and the corpus of each column, and the parts of averages.

    `kinds` has the columns of each kind of settings.
    """

    rows: Sequence[str]
    entries: Mapping[str, Mapping[str, TableEntry]]
    metrics: Mapping[str, TableMetric]
    corpora: Mapping[str, str]
    averages: Mapping[str, Sequence[str]]
    store: RunStore
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns that a claim without a column is about: scores. Megabytes, losses and fairness are other things."""
        return [column for column, metric in self.metrics.items() if metric.is_score]

    def check(self, claims: Sequence[str]) -> list[ClaimResult]:
        """Check every claim. Cells that were not run, lack seeds, or have other corpora in one column, are skipped."""
        parsed = [part for claim in claims for part in self._split_by_kind(Claim.parse(claim))]
        tests = [list(self._test_claim(claim)) for claim in parsed]
        conclusive = [test for row_tests in tests for test in row_tests if test.is_conclusive]
        corrected = holm([test.lead.test(test.claim) for test in conclusive if test.lead is not None])
        p_values = {id(test): p for test, p in zip(conclusive, corrected, strict=True)}
        results = [[test.conclude(p_values.get(id(test))) for test in row_tests] for row_tests in tests]
        return [
            replace(_join_results(claim, parts), left_out=self._left_out(claim))
            for claim, parts in zip(parsed, results, strict=True)
        ]

    def _split_by_kind(self, claim: Claim) -> list[Claim]:
        if claim.names_column or not self.kinds:
            return [claim]
        by_kind = {kind: [c for c in self.columns if c in columns] for kind, columns in self.kinds.items()}
        in_kinds = {c for columns in by_kind.values() for c in columns}
        by_kind["other columns"] = [c for c in self.columns if c not in in_kinds]
        return [claim.limit_to(kind, columns) for kind, columns in by_kind.items() if columns]

    def _left_out(self, claim: Claim) -> tuple[str, ...]:
        """Return the columns that the claim is about and in which one of its cells lacks seeds."""
        keys = [key for pair in claim.cell_pairs(self.rows, self.columns) for key in pair]
        return tuple(dict.fromkeys(key.column for key in keys if self._entry(key).is_partial))

    def _test_claim(self, claim: Claim) -> Iterator[RowTest]:
        by_rows: dict[tuple[str, str], list[tuple[CellKey, CellKey]]] = {}
        for left, right in claim.cell_pairs(self.rows, self.columns):
            pairs = [pair for pair in self._expand_averages(left, right) if self._has_numbers(*pair)]
            if pairs:
                by_rows.setdefault((left.row, right.row), []).extend(pairs)
        for pairs in by_rows.values():
            yield self._test_rows(claim, pairs)

    def _expand_averages(self, left: CellKey, right: CellKey) -> list[tuple[CellKey, CellKey]]:
        """Return the cells whose average two cells are, so that the test knows their examples."""
        if left.column != right.column or left.column not in self.averages:
            return [(left, right)]
        return [(CellKey(left.row, part), CellKey(right.row, part)) for part in self.averages[left.column]]

    def _has_numbers(self, left: CellKey, right: CellKey) -> bool:
        entries = [self._entry(key) for key in (left, right)]
        if entries[0].mean is None or len(entries[0].values) != len(entries[1].values):
            return False
        is_mistake = left.column == right.column and not have_one_corpus(
            [*entries[0].runs, *entries[1].runs], self.store
        )
        return not is_mistake and not any(entry.is_partial for entry in entries)

    def _entry(self, key: CellKey) -> TableEntry:
        return self.entries.get(key.row, {}).get(key.column, TableEntry())

    def _test_rows(self, claim: Claim, pairs: Sequence[tuple[CellKey, CellKey]]) -> RowTest:
        by_corpus: dict[str, list[PairedRuns]] = {}
        exceptions = []
        for left, right in pairs:
            runs = self._pair_runs(left, right)
            by_corpus.setdefault(self.corpora.get(left.column, left.column), []).append(runs)
            lead = float(runs.values.mean())
            if claim.judge(lead).verdict != "shown" and abs(lead) > ROUNDING_ERROR:
                exceptions.append(self._describe_pair(left, right))
        is_counted = all(pair[0].column in self.metrics and self.metrics[pair[0].column].is_traffic for pair in pairs)
        joint = combine_leads(list(by_corpus.values()), is_counted)
        return RowTest(claim, joint, len(pairs), len(by_corpus), tuple(exceptions))

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


def combine_leads(corpora: Sequence[Sequence[PairedRuns]], is_counted: bool) -> Lead | None:
    """Return the mean lead over corpora. The columns of a corpus share its test examples, and the corpora share none."""
    runs = [pair for pairs in corpora for pair in pairs]
    if len({len(pair.values) for pair in runs}) != 1:
        return None
    values = np.mean([np.mean([pair.values for pair in pairs], axis=0) for pairs in corpora], axis=0)
    if is_counted and (len(values) < MIN_SEEDS or np.ptp(values) < ROUNDING_ERROR):
        return Lead(compare_counts(values.mean()), ("seeds",))
    if len(values) >= MIN_SEEDS:
        estimates = [[pair.compare_over_seeds() for pair in pairs] for pairs in corpora]
        deviations = [np.mean([float(e.fixed) ** 0.5 for e in corpus]) for corpus in estimates]
        degrees = min(e.fixed_degrees for corpus in estimates for e in corpus)
        has_examples = any(pair.examples is not None for pair in runs)
        estimate = compare_seeds(values, float(np.square(deviations).sum()) / len(corpora) ** 2, degrees)
        return Lead(estimate, ("seeds", *(("examples",) if has_examples else ())))
    variances = [pair.model_variance() for pair in runs]
    if any(variance is None for variance in variances):
        return None
    deviations = [np.mean([(p.model_variance() or 0.0) ** 0.5 for p in pairs]) for pairs in corpora]
    variance = float(np.square(deviations).sum()) / len(corpora) ** 2
    degrees = sum(len(p.examples[0]) for p in runs if p.examples is not None) - 1
    return Lead(compare_models(values.mean(), variance, degrees), ("examples",))


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
        p_value=worst.p_value,
        compared=sum(result.compared for result in results),
        corpora=worst.corpora,
        exceptions=tuple(text for result in results for text in result.exceptions),
    )
