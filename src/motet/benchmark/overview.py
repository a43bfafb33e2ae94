"""An overview of all tables of a suite: verdicts on claims and mean ranks by kind of setting, and scores by setting.

The rank of a method in a column is computed seed by seed. Its mean over columns and corpora has one value per seed, so its
interval is about other seeds on these corpora. Ranks of five seeds are too coarse for a test: two methods whose order never
changes would have a p-value of zero. Which methods are the best is taken from the tests of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from motet.benchmark.measured_settings import MeasuredSetting, MethodNumbers, best_in_all
from motet.benchmark.render import VERDICT_MARKS, fold
from motet.benchmark.result_tables import ResultTable
from motet.report.figure_files import add_legend_below, new_figure, save_figure
from motet.report.significance import MIN_SEEDS

OVERVIEW = "overview"  # the name of the marker in a Markdown document
FIGURES = {
    "ranks": "Mean rank of each method by kind of skew, with 95 % intervals over seeds (1 is the best)",
    "scores": "Mean score of each method, score of the worst tenth of its clients, and megabytes of a run",
}


@dataclass(frozen=True)
class RankTable:
    """Mean ranks by method and seed, for one kind of setting. 1 is the best."""

    kind: str
    settings: tuple[MeasuredSetting, ...]
    ranks: Mapping[str, np.ndarray]

    def interval(self, method: str) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean over seeds; None with too few seeds."""
        values = self.ranks[method]
        if len(values) < MIN_SEEDS:
            return None
        half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        return max(1.0, float(values.mean() - half)), min(float(len(self.ranks)), float(values.mean() + half))


def rank_methods(kinds: Mapping[str, Sequence[str]], settings: Sequence[MeasuredSetting]) -> list[RankTable]:
    """Rank the methods of each kind, in the settings that have the most methods: others are not finished."""
    tables = []
    for kind, columns in kinds.items():
        candidates = [s for s in settings if s.column in columns]
        most = max((len(s.methods) for s in candidates), default=0)
        chosen = [s for s in candidates if len(s.methods) == most]
        seeds = min((s.seeds for s in chosen), default=0)
        methods = [m for m in (chosen[0].methods if chosen else ()) if all(m in s.methods for s in chosen)]
        if seeds and len(methods) > 1:
            scores = np.array([[s.methods[m].scores[:seeds] for m in methods] for s in chosen])
            ranks = stats.rankdata(-scores.round(9), axis=1).mean(0)  # equal up to rounding is a tie
            tables.append(RankTable(kind, tuple(chosen), dict(zip(methods, ranks, strict=True))))
    return tables


def render_verdicts(tables: Sequence[ResultTable], kinds: Iterable[str]) -> str:
    """Render the verdict on each claim about a kind of settings, by table, in Markdown; empty if there is none."""
    verdicts: dict[str, dict[str, str]] = {}
    for table in tables:
        for claim, kind in product(table.claims, kinds):
            if claim.compared and claim.claim.endswith(f" ({kind})"):
                text = claim.claim.removesuffix(f" ({kind})")
                verdicts.setdefault(text, {})[f"{table.name}: {kind}"] = VERDICT_MARKS[claim.verdict]
    columns = list(dict.fromkeys(column for marks in verdicts.values() for column in marks))
    lines = [f"| claim | {' | '.join(columns)} |", "| --- |" + " :---: |" * len(columns)]
    lines += [f"| {claim} | {' | '.join(marks.get(c, '–') for c in columns)} |" for claim, marks in verdicts.items()]
    legend = "; ".join(f"{mark} {verdict}" for verdict, mark in VERDICT_MARKS.items())
    return "\n".join(lines) + f"\n\n{legend}; –: not tested." if verdicts else ""


def render_overview(tables: Sequence[RankTable]) -> str:
    """Render mean ranks with intervals, and what a test says about them, in Markdown."""
    methods = list(dict.fromkeys(m for table in tables for m in table.ranks))
    methods.sort(key=lambda m: np.mean([table.ranks[m].mean() for table in tables if m in table.ranks]))
    lines = [f"| mean rank | {' | '.join(t.kind for t in tables)} |", "| --- |" + " ---: |" * len(tables)]
    for method in methods:
        lines.append(f"| {method} | {' | '.join(_describe_rank(table, method) for table in tables)} |")
    sentences = []
    for table in tables:
        names = ", ".join(setting.name.replace(", ", ": ", 1) for setting in table.settings)
        best = best_in_all(table.settings)
        if best is None:
            verdict = (
                f"fewer than {MIN_SEEDS} seeds, so these ranks are about the trained models, not about the methods"
            )
        else:
            verdict = f"best or not significantly worse in all of them: {'; '.join(best) or 'no method'}"
        sentences.append(f"- **{table.kind}** ({names}): {verdict}.")
    explanation = (
        "1 is the best rank. In brackets: 95 % intervals over seeds, on these corpora. –: without all seeds. Which methods "
        "are the best is taken from the tests of the columns, over seeds and test examples."
    )
    text = "\n\n".join(["\n".join(lines), "\n".join(sentences), explanation])
    return fold("Mean ranks, and the methods that are best or not significantly worse", text)


def _describe_rank(table: RankTable, method: str) -> str:
    if method not in table.ranks:
        return "–"
    interval = table.interval(method)
    return f"{table.ranks[method].mean():.1f}" + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "")


def draw_overview(tables: Sequence[RankTable], settings: Sequence[MeasuredSetting], folder: Path) -> None:
    """Draw the figures of the overview."""
    _draw_ranks(tables, folder / f"{OVERVIEW}-ranks.png")
    _draw_scores(settings, folder / f"{OVERVIEW}-scores.png")


def _draw_ranks(tables: Sequence[RankTable], path: Path) -> None:
    methods = list(tables[0].ranks)
    methods.sort(key=lambda m: tables[0].ranks[m].mean())
    figure, panels = new_figure(len(tables), width=3.2, height=0.9 + 0.24 * len(methods), sharey=True)
    for axes, table in zip(panels, tables, strict=True):
        for y, method in enumerate(methods):
            if method in table.ranks:
                mean = table.ranks[method].mean()
                low, high = table.interval(method) or (mean, mean)
                axes.errorbar([mean], [y], xerr=[[mean - low], [high - mean]], fmt="o", color="C0", capsize=2.5)
        axes.set_yticks(range(len(methods)), methods, fontsize=8)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.set_xlim(0, len(methods) + 1)
        axes.set_title(table.kind, fontsize=9)
        axes.set_xlabel("mean rank (1 is the best)", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(alpha=0.3)
    save_figure(figure, path)


def _draw_scores(settings: Sequence[MeasuredSetting], path: Path) -> None:
    """Draw one panel per setting with a line for each row: methods by their mean over settings, and bounds below them."""
    rows = [*_sort_rows([s.methods for s in settings]), *_sort_rows([s.bounds for s in settings])]
    count, columns = len(settings), min(2, len(settings))
    size = {"width": 4.2, "height": 0.9 + 0.19 * len(rows)}
    figure, panels = new_figure(columns, -(-count // columns), **size, sharey=True)
    for axes, setting in zip(panels, settings, strict=False):
        for y, row in enumerate(rows):
            numbers = setting.methods.get(row) or setting.bounds.get(row)
            if numbers is not None:
                _draw_row(axes, y, numbers, is_bound=row in setting.bounds)
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_title(setting.name, fontsize=9)
        axes.set_xlabel(f"{setting.score} (%)", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    for axes in panels[count:]:
        axes.axis("off")
    add_legend_below(figure)
    save_figure(figure, path)


def _sort_rows(settings: Sequence[Mapping[str, MethodNumbers]]) -> list[str]:
    """Return the rows of all settings, the highest mean over settings first."""
    means: dict[str, list[float]] = {}
    for rows in settings:
        for row, numbers in rows.items():
            means.setdefault(row, []).append(numbers.mean)
    return sorted(means, key=lambda row: -fmean(means[row]))


def _draw_row(axes: Any, y: int, numbers: MethodNumbers, *, is_bound: bool) -> None:
    color, label = ("0.35", "bound") if is_bound else ("C1", "best mean") if numbers.is_best else ("C0", "mean")
    axes.plot(numbers.mean, y, "o", markersize=5, color=color, label=label, zorder=3)
    if numbers.worst is not None:
        axes.plot([numbers.worst, numbers.mean], [y, y], color=color, linewidth=0.8, alpha=0.5)
        style = {"markerfacecolor": "white", "markeredgecolor": color, "label": "worst tenth of the clients"}
        axes.plot(numbers.worst, y, "D", markersize=4, **style)
    if numbers.megabytes:
        text = f"{numbers.megabytes:,.0f} MB"
        axes.annotate(text, (1.02, y), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7)
