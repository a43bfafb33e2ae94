"""A table as a picture: a panel a column, a dot a method, and where the bounds and the paper's numbers lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any

from motet.benchmark.result_tables import ResultTable, TableEntry
from motet.report.figure_files import new_figure, save_figure

_WIDE = 5  # panels in a line
_LETTERS = 22  # of a title, above so narrow a panel
_LOOKS = (":", "--", "-.", (0, (6, 1, 1, 1, 1, 1)))  # of bounds, in their order


def draw_table(table: ResultTable, path: Path) -> bool:
    """Whether there was anything to draw."""
    table = _turned(table)
    columns = [c for c in table.columns if any(table.entries[row][c].values for row in table.rows)]
    if not columns:
        path.unlink(missing_ok=True)  # an earlier one, of runs that are gone
        return False
    lines = -(-len(columns) // _WIDE)
    wide = -(-len(columns) // lines)
    figure, panels = new_figure(wide, lines, width=1.75 + 1.7 / wide, height=0.75 + 0.24 * len(table.rows), sharey=True)
    seeds = any(e.deviation is not None for row in table.rows for e in table.entries[row].values())
    for column, axes in zip(columns, panels, strict=False):
        _panel(axes, table, column, "ours, ± deviation over seeds" if seeds else "ours")
    for axes in panels[len(columns) :]:
        axes.axis("off")
    known = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=len(known), frameon=False, fontsize=8)
    save_figure(figure, path)
    return True


def _turned(table: ResultTable) -> ResultTable:
    """A method's numbers after different rounds are compared with each other: they belong in one panel."""
    if not table.over_rounds or table.bounds:
        return table
    entries = {column: {row: table.entries[row][column] for row in table.rows} for column in table.columns}
    return replace(table, rows=table.columns, columns=table.rows, entries=entries)


def _panel(axes: Any, table: ResultTable, column: str, ours: str) -> None:
    for bound, look in zip(table.bounds, cycle(_LOOKS), strict=False):
        mean = table.entries[bound][column].mean
        if mean is not None:
            axes.axvline(mean, linestyle=look, color="0.35", linewidth=1.2, label=bound)
    for place, row in enumerate(table.rows):
        _dot(axes, table.entries[row][column], place, ours)
    axes.set_yticks(range(len(table.rows)), table.rows, fontsize=8)
    axes.set_ylim(len(table.rows) - 0.5, -0.5)
    less = "\n(less is better)" if column in table.lower else ""
    axes.set_title(fill(column, _LETTERS) + less, fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _dot(axes: Any, entry: TableEntry, place: int, ours: str) -> None:
    if entry.published is not None:
        look = {"marker": "D", "markersize": 4.5, "color": "none", "markeredgecolor": "0.45"}
        axes.plot([entry.published], [place], linestyle="none", label="the paper's", **look)
    if entry.mean is not None:
        look = {"color": "C1" if entry.best else "C0", "label": "the best" if entry.best else ours}
        axes.errorbar([entry.mean], [place], xerr=[entry.deviation or 0.0], fmt="o", markersize=5, capsize=2.5, **look)
