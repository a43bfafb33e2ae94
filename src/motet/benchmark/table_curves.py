"""The learning curves behind a table: a score by rounds and by megabytes, one line per method, one panel per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from motet.benchmark.cells import Cell
from motet.benchmark.result_tables import ResultTable, heading_metrics
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import TableSpec
from motet.benchmark.table_metrics import PRIMARY_METRIC, TableMetric
from motet.experiment.loop.metrics_log import read_metrics
from motet.report.figure_files import new_figure, save_figure

MIN_POINTS = 3
_MAX_PANELS_PER_LINE = 3


@dataclass(frozen=True, eq=False)
class MethodCurve:
    """The curve of a method: one row of `scores` per seed, one column per evaluated round."""

    rounds: np.ndarray
    megabytes: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, eq=False)
class CurvePanel:
    """The curves of a column, over the seeds that all its methods have finished."""

    title: str
    metric: str
    methods: Mapping[str, MethodCurve]
    bounds: Mapping[str, MethodCurve]


def draw_learning_curves(
    spec: TableSpec, table: ResultTable, cells: Sequence[Cell], store: RunStore, path: Path
) -> bool:
    """Draw the curves of a table to a file. Return False and remove the file if no run was evaluated often enough."""
    columns = dict.fromkeys(cell.column for cell in cells)
    panels = [p for c in columns if (p := _collect_panel(spec, table, [x for x in cells if x.column == c], store))]
    if not panels:
        path.unlink(missing_ok=True)
        return False
    by_traffic = any(_differ_in_traffic(panel) for panel in panels)
    per_line = min(len(panels), _MAX_PANELS_PER_LINE)
    lines = -(-len(panels) // per_line)
    has_free_place = lines * per_line > len(panels)
    width = 3.0 if has_free_place else 2.6 + 2.0 / per_line  # with room for the legend
    figure, axes = new_figure(per_line, lines * (1 + by_traffic), width=width, height=2.6)
    for i, panel in enumerate(panels):
        _draw_panel(axes[i], panel, table, "round")
        if by_traffic:
            _draw_panel(axes[lines * per_line + i], panel, table, "megabytes")
    _draw_legend(figure, axes)
    save_figure(figure, path)
    return True


def _draw_legend(figure: Any, axes: Sequence[Any]) -> None:
    """Draw one legend for all panels: in the first place without a panel, or else to the right of all."""
    handles = {label: h for a in axes for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    free = [a for a in axes if not a.lines]
    for unused in free:
        unused.axis("off")
    place, where = (free[0], "center") if free else (figure, "outside right center")
    place.legend(handles.values(), handles, loc=where, fontsize=8, frameon=False)


def _collect_panel(spec: TableSpec, table: ResultTable, cells: Sequence[Cell], store: RunStore) -> CurvePanel | None:
    """Read the curves of a column; None if no method was evaluated often enough."""
    column = cells[0].column
    metric = next((m for h, m in heading_metrics(spec).items() if h in spec.metrics(column) and m.is_score), None)
    runs = {
        row: {c.seed: c.run.name for c in cells if c.row == row and store.is_done(c.run.name)} for row in table.entries
    }
    started = [set(by_seed) for row, by_seed in runs.items() if row in table.rows and by_seed]
    if metric is None or metric.clients or not started:  # the log has no mean over some of the clients
        return None
    seeds = sorted(set.intersection(*started))
    curves = {
        row: curve
        for row, by_seed in runs.items()
        if set(seeds) <= set(by_seed)
        and (curve := _read_curve([by_seed[seed] for seed in seeds], metric, store)) is not None
    }
    if not any(len(curves[row].rounds) >= MIN_POINTS for row in table.rows if row in curves):
        return None
    return CurvePanel(
        title=f"{column}, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}",
        metric="score" if metric.spec.metric == PRIMARY_METRIC else metric.spec.metric or "",
        methods={row: curves[row] for row in table.rows if row in curves},
        bounds={row: curves[row] for row in table.bounds if row in curves},
    )


def _read_curve(names: Sequence[str], metric: TableMetric, store: RunStore) -> MethodCurve | None:
    """Read the curves of a method's runs, in the rounds in which all of them were evaluated."""
    rows_by_round: list[dict[int, Any]] = []
    who, split = ("clients", "test") if metric.is_per_client else ("server", metric.split)
    for name in names:
        headline = str((store.summary(name) or {}).get("headline"))
        metric_name = headline if metric.spec.metric == PRIMARY_METRIC else metric.spec.metric
        rows = read_metrics(store.run_folder(name)).rows
        rows_by_round.append(
            {r["round"]: r for r in rows if (r["who"], r["split"], r["name"]) == (who, split, metric_name)}
        )
    rounds = sorted(set.intersection(*map(set, rows_by_round))) if rows_by_round else []
    if not rounds:
        return None
    return MethodCurve(
        rounds=np.array(rounds),
        megabytes=np.array([np.mean([rows[r]["bytes"] for rows in rows_by_round]) for r in rounds]) / 1e6,
        scores=metric.scale * np.array([[rows[r]["value"] for r in rounds] for rows in rows_by_round]),
    )


def _differ_in_traffic(panel: CurvePanel) -> bool:
    """Return True if some method sends at least a tenth more per round than another."""
    rates = [curve.megabytes[-1] / curve.rounds[-1] for curve in panel.methods.values()]
    return bool(max(rates) > 1.1 * min(rates))


def _draw_panel(axes: Any, panel: CurvePanel, table: ResultTable, x: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for bound, style in zip(table.bounds, cycle((":", "--", "-.")), strict=False):
        if bound in panel.bounds:
            level = panel.bounds[bound].scores[:, -1].mean()
            axes.axhline(level, linestyle=style, color="0.35", linewidth=1.2, label=bound)
    for i, method in enumerate(table.rows):
        if method in panel.methods:
            curve = panel.methods[method]
            xs = curve.rounds if x == "round" else curve.megabytes
            mean, std = curve.scores.mean(0), curve.scores.std(0, ddof=1) if len(curve.scores) > 1 else 0.0
            style = "-" if i < 10 else "--"  # matplotlib has ten colors
            axes.plot(xs, mean, style, color=f"C{i % 10}", marker="o", markersize=3, linewidth=1.5, label=method)
            axes.fill_between(xs, mean - std, mean + std, color=f"C{i % 10}", alpha=0.15, linewidth=0)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel("round" if x == "round" else "MB sent, up and down", fontsize=8)
    axes.set_ylabel(panel.metric, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "round", steps=[1, 2, 5, 10]))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
