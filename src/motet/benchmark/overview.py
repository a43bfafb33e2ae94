"""An overview of all tables of a suite: mean ranks by kind of setting, accuracy by megabytes, and fairness by accuracy.

The rank of a method in a column is computed seed by seed. Its mean over columns and corpora has one value per seed, so its
interval is about other seeds on these corpora. Ranks of five seeds are too coarse for a test: two methods whose order never
changes would have a p-value of zero. Which methods are the best is taken from the tests of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from motet.benchmark.measured_settings import MeasuredSetting, best_in_all
from motet.report.figure_files import new_figure, save_figure
from motet.report.point_labels import LabeledPoint, draw_labels
from motet.report.significance import MIN_SEEDS

OVERVIEW = "overview"  # the name of the marker in a Markdown document
FIGURES = {
    "ranks": "Mean rank of each method by kind of skew, with 95 % intervals over seeds (1 is the best)",
    "cost": "Mean score of each method against the megabytes of a run; lines: training without federation",
    "fairness": "Score of the worst tenth of the clients against the mean score",
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
        of_kind = [s for s in settings if s.column in columns]
        most = max((len(s.methods) for s in of_kind), default=0)
        chosen = [s for s in of_kind if len(s.methods) == most]
        seeds = min((s.seeds for s in chosen), default=0)
        methods = [m for m in (chosen[0].methods if chosen else ()) if all(m in s.methods for s in chosen)]
        if seeds and len(methods) > 1:
            scores = np.array([[s.methods[m].scores[:seeds] for m in methods] for s in chosen])
            ranks = stats.rankdata(-scores.round(9), axis=1).mean(0)  # equal up to rounding is a tie
            tables.append(RankTable(kind, tuple(chosen), dict(zip(methods, ranks, strict=True))))
    return tables


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
    legend = (
        "1 is the best rank. In brackets: 95 % intervals over seeds, on these corpora. –: without all seeds. Which methods "
        "are the best is taken from the tests of the columns, over seeds and test examples."
    )
    return "\n\n".join(["\n".join(lines), "\n".join(sentences), legend])


def _describe_rank(table: RankTable, method: str) -> str:
    if method not in table.ranks:
        return "–"
    interval = table.interval(method)
    return f"{table.ranks[method].mean():.1f}" + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "")


def draw_overview(tables: Sequence[RankTable], settings: Sequence[MeasuredSetting], folder: Path) -> list[str]:
    """Draw the figures of the overview. Return their names."""
    _draw_ranks(tables, folder / f"{OVERVIEW}-ranks.png")
    names = ["ranks"]
    for name in ("cost", "fairness"):
        if any(_point(n, name) is not None for s in settings for n in s.methods.values()):
            _draw_points(settings, name, folder / f"{OVERVIEW}-{name}.png")
            names.append(name)
    return names


def _point(numbers: Any, name: str) -> tuple[float, float] | None:
    """Return x and y of a method in a figure; None if it has no such number."""
    if name == "cost":
        return None if numbers.megabytes is None else (numbers.megabytes, numbers.mean)
    return None if numbers.worst is None else (numbers.mean, numbers.worst)


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


def _draw_points(settings: Sequence[MeasuredSetting], name: str, path: Path) -> None:
    count = len(settings)
    columns = min(2, count)
    methods = dict.fromkeys(method for setting in settings for method in setting.methods)
    colors = {method: f"C{i % 10}" for i, method in enumerate(methods)}  # the same in all panels
    figure, panels = new_figure(columns, -(-count // columns), width=4.6, height=3.4)
    for axes, setting in zip(panels, settings, strict=False):
        axes.set_title(setting.name, fontsize=8)
        score, worst = f"{setting.score} (%)", f"{setting.score} of the worst tenth (%)"
        axes.set_xlabel("MB sent in a run, up and down" if name == "cost" else score, fontsize=8)
        axes.set_ylabel(score if name == "cost" else worst, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        _draw_setting(axes, setting, name, colors)
    for axes in panels[count:]:
        axes.axis("off")
    handles = {label: h for axes in panels for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False
        )
    save_figure(figure, path)


def _draw_setting(axes: Any, setting: MeasuredSetting, name: str, colors: Mapping[str, str]) -> None:
    """Draw the points of one panel with their names. Bounds are hollow, or lines where they have no traffic to compare."""
    points = []
    rows = setting.methods if name == "cost" else {**setting.methods, **setting.bounds}
    for row, numbers in rows.items():
        if (point := _point(numbers, name)) is not None:
            is_bound = row in setting.bounds
            color = "0.35" if is_bound else colors[row]
            points.append(LabeledPoint(*point, row, color))
            face = "none" if is_bound else color
            axes.plot(*point, "o", markersize=5, markerfacecolor=face, markeredgecolor=color)
    if name == "cost":
        for (bound, numbers), style in zip(setting.bounds.items(), cycle(("--", ":")), strict=False):
            axes.axhline(numbers.mean, linestyle=style, color="0.35", linewidth=1, label=bound)
    draw_labels(axes, points)
