"""The learning curves behind a table: scores by rounds and by megabytes, one line per method, one panel per score.

Methods in `compare_columns` of the suite also have a panel of their own, with one line per column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from motet.report.figure_files import collect_handles, new_figure, save_figure
from motet.report.number_text import count_of

MIN_POINTS = 3
_MAX_PANELS_PER_LINE = 3


@dataclass(frozen=True, eq=False)
class MethodCurve:
    """The curve of a method in a column: one row of `scores` per seed, one column per evaluated round."""

    rounds: np.ndarray
    megabytes: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, eq=False)
class CurvePanel:
    """The curves of a score of a column or of a method, over the seeds that all of them have."""

    title: str
    axis_label: str
    curves: Mapping[str, MethodCurve]
    names: Sequence[str]  # all names that have a color, so that a method has the same one in every panel
    bounds: Mapping[str, MethodCurve] = field(default_factory=dict)
    has_legend: bool = False  # of its own, because its lines are not the methods of the other panels


def draw_learning_curves(
    spec: TableSpec, table: ResultTable, cells: Sequence[Cell], store: RunStore, path: Path
) -> bool:
    """Draw the curves of a table to a file. Return False and remove the file if no run was evaluated often enough."""
    candidates = []
    for column in dict.fromkeys(cell.column for cell in cells):
        its_cells = [cell for cell in cells if cell.column == column]
        candidates += [_column_panel(metric, table, its_cells, store) for metric in _curve_metrics(spec, column)]
    candidates += [_method_panel(spec, [cell for cell in cells if cell.row == r], store) for r in spec.compare_columns]
    panels = [panel for panel in candidates if panel is not None]
    if not panels:
        path.unlink(missing_ok=True)
        return False
    by_traffic = any(_differ_in_traffic(panel) for panel in panels)
    lines = -(-len(panels) // _MAX_PANELS_PER_LINE)
    per_line = -(-len(panels) // lines)
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
    """Draw one legend for all panels without one: in the first place without a panel, or else to the right of all."""
    handles = collect_handles(a for a in axes if a.get_legend() is None)
    free = [a for a in axes if not a.lines]
    for unused in free:
        unused.axis("off")
    place, where = (free[0], "center") if free else (figure, "outside right center")
    place.legend(handles.values(), handles, loc=where, fontsize=8, frameon=False)


def _column_panel(metric: TableMetric, table: ResultTable, cells: Sequence[Cell], store: RunStore) -> CurvePanel | None:
    """Read the curves of a score of a column; None if no method was evaluated often enough."""
    runs = {row: _finished_runs([cell for cell in cells if cell.row == row], store) for row in table.entries}
    started = [set(by_seed) for row, by_seed in runs.items() if row in table.rows and by_seed]
    if not started:
        return None
    seeds = sorted(set.intersection(*started))
    curves = _read_curves(runs, seeds, metric, store)
    if not any(len(curves[row].rounds) >= MIN_POINTS for row in table.rows if row in curves):
        return None
    return CurvePanel(
        title=f"{cells[0].column}, {count_of(len(seeds), 'seed')}",
        axis_label=metric.axis_label,
        curves={row: curves[row] for row in table.rows if row in curves},
        names=table.rows,
        bounds={row: curves[row] for row in table.bounds if row in curves},
    )


def _method_panel(spec: TableSpec, cells: Sequence[Cell], store: RunStore) -> CurvePanel | None:
    """Read the curves of a method's first score in all columns; None if it has none in two columns with the same metric."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    metrics = {column: scores[0] for column in columns if (scores := _curve_metrics(spec, column))}
    runs = {column: _finished_runs([cell for cell in cells if cell.column == column], store) for column in metrics}
    runs = {column: by_seed for column, by_seed in runs.items() if by_seed}
    if len(runs) < 2 or len({metrics[column].spec for column in runs}) > 1:
        return None
    seeds = sorted(set.intersection(*map(set, runs.values())))
    metric = metrics[next(iter(runs))]
    curves = _read_curves(runs, seeds, metric, store)
    if not any(len(curve.rounds) >= MIN_POINTS for curve in curves.values()):
        return None
    title = f"{cells[0].row}, {count_of(len(seeds), 'seed')}"
    return CurvePanel(title, metric.axis_label, curves, names=columns, has_legend=True)


def _curve_metrics(spec: TableSpec, column: str) -> list[TableMetric]:
    """Return the scores of a column that the log has, which has no mean over some of the clients.

    Each is there once: the last and the best accuracy have the same curve.
    """
    metrics = heading_metrics(spec)
    scores = [metrics[heading] for heading in spec.metrics(column) if metrics[heading].is_score]
    unique: dict[tuple[str | None, bool], TableMetric] = {}
    for metric in scores:
        if not metric.clients:
            unique.setdefault((metric.spec.metric, metric.is_per_client), metric)
    return list(unique.values())


def _finished_runs(cells: Sequence[Cell], store: RunStore) -> dict[int, str]:
    return {cell.seed: cell.run.name for cell in cells if store.is_done(cell.run.name)}


def _read_curves(
    runs: Mapping[str, Mapping[int, str]], seeds: Sequence[int], metric: TableMetric, store: RunStore
) -> dict[str, MethodCurve]:
    """Read the curves over these seeds of all that have finished them."""
    return {
        name: curve
        for name, by_seed in runs.items()
        if set(seeds) <= set(by_seed)
        and (curve := _read_curve([by_seed[seed] for seed in seeds], metric, store)) is not None
    }


def _read_curve(names: Sequence[str], metric: TableMetric, store: RunStore) -> MethodCurve | None:
    """Read the curves of a method's runs, in the rounds in which all of them were evaluated."""
    rows_by_round: list[dict[int, Any]] = []
    who, split = ("clients", "test") if metric.is_per_client else ("server", metric.split)
    for name in names:
        primary_metric = str((store.summary(name) or {}).get("primary_metric"))
        metric_name = primary_metric if metric.spec.metric == PRIMARY_METRIC else metric.spec.metric
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
    rates = [curve.megabytes[-1] / curve.rounds[-1] for curve in panel.curves.values()]
    return bool(max(rates) > 1.1 * min(rates))


def _draw_panel(axes: Any, panel: CurvePanel, table: ResultTable, x: str) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    colors: Sequence[Any] = colormaps["Dark2" if panel.has_legend else "tab10"].colors  # type: ignore[attr-defined]
    for bound, style in zip(table.bounds, cycle((":", "--", "-.")), strict=False):
        if bound in panel.bounds:
            level = panel.bounds[bound].scores[:, -1].mean()
            axes.axhline(level, linestyle=style, color="0.35", linewidth=1.2, label=bound)
    for i, name in enumerate(panel.names):
        if name in panel.curves:
            curve = panel.curves[name]
            xs = curve.rounds if x == "round" else curve.megabytes
            mean, std = curve.scores.mean(0), curve.scores.std(0, ddof=1) if len(curve.scores) > 1 else 0.0
            style, color = "-" if i < len(colors) else "--", colors[i % len(colors)]
            axes.plot(xs, mean, style, color=color, marker="o", markersize=3, linewidth=1.5, label=name)
            axes.fill_between(xs, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
    if panel.has_legend:
        axes.legend(fontsize=7, frameon=False, loc="lower right")
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel("round" if x == "round" else "MB sent, up and down", fontsize=8)
    axes.set_ylabel(panel.axis_label, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "round", steps=[1, 2, 5, 10]))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
