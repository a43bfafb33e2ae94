"""Learning curves as pictures: a metric against rounds, and against what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Curve = Sequence[tuple[float, float]]


def draw_curves(curves: Mapping[str, Curve], metric: str, title: str, path: Path) -> None:
    """A metric against rounds, a line a run. A run looked at once (isolated, say) is a dashed level."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _axes()
    last = max((curve[-1][0] for curve in curves.values() if curve), default=1)
    for name, curve in curves.items():
        # centralised: its rounds are passes over all data, no federated rounds
        _line(axes, name, curve, level=len(curve) == 1 or name == "centralised")
    axes.set(xlabel="round", ylabel=f"{metric} on the global test set", title=title, xlim=(0.8, max(2, last) + 0.2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _save(figure, path)


def draw_traffic_curves(costs: Mapping[str, Curve], ylabel: str, title: str, path: Path) -> None:
    """A metric against megabytes moved, both ways, a line a run. A run that moved nothing is a dashed level."""
    figure, axes = _axes()
    moved = [bytes_ for cost in costs.values() for bytes_, _ in cost if bytes_]
    for name, cost in costs.items():
        _line(axes, name, [(bytes_ / 1e6, value) for bytes_, value in cost], level=not any(b for b, _ in cost))
    axes.set(xlabel="MB moved, up and down", ylabel=ylabel, title=title)
    if moved and max(moved) > 20 * min(moved):
        axes.set_xscale("log")
    _save(figure, path)


def _axes() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(8, 4.2), dpi=150, layout="constrained")


def _line(axes: Any, name: str, curve: Curve, level: bool) -> None:
    if not curve:
        return
    along, values = zip(*curve, strict=True)
    look = {"color": f"C{len(axes.lines)}", "label": f"{name}: {values[-1]:.3f}"}
    if level:
        axes.axhline(values[-1], linestyle="--", linewidth=1.4, **look)
    else:
        axes.plot(along, values, marker="o", markersize=3.5, linewidth=1.8, **look)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    axes = figure.axes[0]
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path)
    plt.close(figure)
