"""Learning curves: a metric against rounds, and against traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.report.figure_files import new_figure, save_figure

Curve = Sequence[tuple[float, float]]


def draw_curves(curves: Mapping[str, Curve], ylabel: str, title: str, path: Path) -> None:
    """Draw a metric against rounds, with one line per run.

    A run with a single evaluation (isolated) is a dashed level. So is the centralized baseline: its rounds are epochs
    over all data and cannot be compared with federated rounds.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = _new_axes()
    last_round = max((curve[-1][0] for curve in curves.values() if curve), default=1)
    for name, curve in curves.items():
        _draw_line(axes, name, curve, as_level=len(curve) == 1 or name == "centralized")
    first_round = min((curve[0][0] for curve in curves.values() if curve), default=1)
    xlim = (first_round - 0.2, max(2, last_round) + 0.2)
    axes.set(xlabel="round", ylabel=ylabel, title=title, xlim=xlim)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _save(figure, path)


def draw_traffic_curves(curves: Mapping[str, Curve], ylabel: str, title: str, path: Path) -> None:
    """Draw a metric against the megabytes sent, up and down. A run that sent nothing is a dashed level."""
    figure, axes = _new_axes()
    for name, curve in curves.items():
        megabytes = [(sent / 1e6, value) for sent, value in curve]
        _draw_line(axes, name, megabytes, as_level=not any(sent for sent, _ in curve))
    axes.set(xlabel="MB sent, up and down", ylabel=ylabel, title=title)
    nonzero = [sent for curve in curves.values() for sent, _ in curve if sent]
    if nonzero and max(nonzero) > 20 * min(nonzero):
        axes.set_xscale("log")
    _save(figure, path)


def _new_axes() -> tuple[Any, Any]:
    figure, (axes,) = new_figure(width=8, height=4.2)
    return figure, axes


def _draw_line(axes: Any, name: str, curve: Curve, as_level: bool) -> None:
    if not curve:
        return
    xs, values = zip(*curve, strict=True)
    style = {"color": f"C{len(axes.lines)}", "label": f"{name}: {values[-1]:.3f}"}
    if as_level:
        axes.axhline(values[-1], linestyle="--", linewidth=1.4, **style)
    else:
        axes.plot(xs, values, marker="o", markersize=3.5, linewidth=1.8, **style)


def _save(figure: Any, path: Path) -> None:
    axes = figure.axes[0]
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    save_figure(figure, path)
