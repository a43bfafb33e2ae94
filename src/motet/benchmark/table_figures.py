"""A result table as a figure: one panel per column, one dot per method, with bounds and published numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any

from motet.benchmark.result_tables import ResultTable
from motet.benchmark.table_entry import TableEntry
from motet.report.figure_files import add_legend_below, new_figure, save_figure

_MAX_PANELS_PER_LINE = 3  # on the width of a page, more would have too small letters
_TITLE_WIDTH = 22  # characters that fit above a panel
_PARTIAL = {"markerfacecolor": "white", "label": "not all seeds"}
_BOUND_LINE_STYLES = (":", "--", "-.", (0, (6, 1, 1, 1, 1, 1)))


def draw_table(table: ResultTable, path: Path) -> bool:
    """Draw a table to a file. Return False and remove the file if the table has no numbers."""
    table = _group_rounds_by_method(table)
    columns = [c for c in table.columns if any(table.entries[row][c].values for row in table.rows)]
    if not columns:
        path.unlink(missing_ok=True)
        return False
    lines = -(-len(columns) // _MAX_PANELS_PER_LINE)
    per_line = -(-len(columns) // lines)
    width, height = 1.75 + 1.7 / per_line, 0.95 + 0.24 * len(table.rows)
    figure, panels = new_figure(per_line, lines, width=width, height=height, sharey=True)
    has_std = any(entry.std is not None for row in table.rows for entry in table.entries[row].values())
    label = "ours, ± std over seeds" if has_std else "ours"
    for column, axes in zip(columns, panels, strict=False):
        _draw_panel(axes, table, column, label)
    for axes in panels[len(columns) :]:
        axes.axis("off")
    add_legend_below(figure)
    save_figure(figure, path)
    return True


def _group_rounds_by_method(table: ResultTable) -> ResultTable:
    """Transpose a table over rounds, so that each method has one panel with its numbers after different rounds."""
    if not table.over_rounds or table.bounds:
        return table
    entries = {column: {row: table.entries[row][column] for row in table.rows} for column in table.columns}
    label = next(iter(table.axis_labels.values()), "")  # all rounds have the same metric
    labels = dict.fromkeys(table.rows, label)
    return replace(table, rows=table.columns, columns=table.rows, entries=entries, axis_labels=labels)


def _draw_panel(axes: Any, table: ResultTable, column: str, label: str) -> None:
    for bound, line_style in zip(table.bounds, cycle(_BOUND_LINE_STYLES), strict=False):
        entry = table.entries[bound][column]
        if entry.mean is not None:
            axes.axvline(entry.mean, linestyle=line_style, color="0.35", linewidth=1.2, label=bound)
        if entry.is_partial:  # a hollow dot at the end of the line, as rows have
            style = {"marker": "o", "markersize": 5, "color": "0.35", "clip_on": False, **_PARTIAL}
            axes.plot([entry.mean], [1], linestyle="none", transform=axes.get_xaxis_transform(), **style)
    for y, row in enumerate(table.rows):
        _draw_entry(axes, table.entries[row][column], y, label)
    axes.set_yticks(range(len(table.rows)), table.rows, fontsize=8)
    axes.set_ylim(len(table.rows) - 0.5, -0.5)
    hint = "\n(lower is better)" if column in table.lower_is_better else ""
    axes.set_title(fill(column, _TITLE_WIDTH) + hint, fontsize=9)
    axes.set_xlabel(table.axis_labels.get(column, ""), fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_entry(axes: Any, entry: TableEntry, y: int, label: str) -> None:
    if entry.published is not None:
        style = {"marker": "D", "markersize": 4.5, "color": "none", "markeredgecolor": "0.45"}
        axes.plot([entry.published], [y], linestyle="none", label="paper", **style)
    if entry.mean is not None:
        style = {"color": "C1" if entry.is_best else "C0", "label": "best" if entry.is_best else label}
        if entry.is_partial:
            style |= _PARTIAL
        axes.errorbar([entry.mean], [y], xerr=[entry.std or 0.0], fmt="o", markersize=5, capsize=2.5, **style)
