"""A number of a result table: one value per seed, and how it compares with the highest of its column."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from motet.report.number_text import format_p_value, use_minus_signs
from motet.report.significance import SIGNIFICANCE_LEVEL, Comparison


@dataclass(frozen=True)
class TableEntry:
    """A number of a table, with one value per seed.

    `comparison` is the difference to the row `compared_with`, the best method of the column. `p_value` is its p-value,
    adjusted for all comparisons of the column. `interval` belongs to a number that has no standard formula, such as the worst
    tenth of the clients.
    """

    values: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()
    published: float | None = None
    is_best: bool = False
    comparison: Comparison | None = None
    compared_with: str = ""
    p_value: float | None = None
    interval: tuple[float, float] | None = None
    missing_reason: str = ""  # why some seeds have no value
    expected: int = 0  # number of seeds
    is_bound: bool = False  # not ranked, so neither the best nor tied
    is_outdated: bool = False  # some runs are from another version of Motet than most of the table

    @property
    def is_partial(self) -> bool:
        """True if some of the seeds are missing."""
        return 0 < len(self.values) < self.expected

    @property
    def partial_mark(self) -> str:
        """A mark that shows how many seeds the number has, if some are missing; else an empty text."""
        return f" † {len(self.values)} of {self.expected}" if self.is_partial else ""

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_tied(self) -> bool:
        """True if the method is not the best, but not significantly worse either. False if that is not known."""
        is_about_methods = self.comparison is not None and self.comparison.is_about_methods
        return (
            not self.is_best and not self.is_bound and is_about_methods and (self.p_value or 0.0) >= SIGNIFICANCE_LEVEL
        )


def format_number(value: float, like: float | None = None) -> str:
    """Format a number with about three significant digits: 58.3, 1,027, 0.26.

    With `like`, use as many decimals as for that number (a standard deviation next to its mean).
    """
    size = abs(value if like is None else like)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def format_interval(comparison: Comparison, like: float | None = None) -> str:
    """Format a difference with its interval: −9.0 [−14.6, −3.4]."""
    numbers = (comparison.difference, comparison.low, comparison.high)
    size = max(map(abs, numbers)) if like is None else like
    difference, low, high = (format_number(number, size) for number in numbers)
    return use_minus_signs(f"{difference} [{low}, {high}]")


def describe_difference(entry: TableEntry) -> str:
    """Return the difference to the best of the column with its interval and p-value; empty if it was not tested."""
    comparison = entry.comparison
    if comparison is None or entry.p_value is None or entry.mean is None:
        return ""
    size = max(abs(entry.mean), abs(comparison.difference))  # the larger number decides on the decimals
    return f"{format_interval(comparison, size)}, {format_p_value(entry.p_value)}"
