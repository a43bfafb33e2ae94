"""Plots of a result for notebooks: figures of matplotlib or, on request, of plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.report.figure_files import new_figure

Engine = Literal["matplotlib", "plotly"]
Curve = Sequence[tuple[float, float]]
MAX_NUMBERED_LABELS = 20  # of a confusion matrix; with more, its cells have no numbers


def plot_curves(curves: Mapping[str, Curve], ylabel: str, engine: Engine) -> Any:
    """Draw values over rounds, with one line for each name."""
    lines = {name: tuple(zip(*curve, strict=True)) for name, curve in curves.items() if curve}
    if _is_plotly(engine):
        import plotly.graph_objects as go

        traces = [go.Scatter(x=x, y=y, name=name, mode="lines+markers") for name, (x, y) in lines.items()]
        return go.Figure(traces, {"xaxis": {"title": "round"}, "yaxis": {"title": ylabel}})
    figure, (axes,) = _new_notebook_figure()
    for name, (x, y) in lines.items():
        axes.plot(x, y, marker="o", markersize=3.5, label=name)
    axes.set(xlabel="round", ylabel=ylabel)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def plot_bars(values: Mapping[str, float], xlabel: str, engine: Engine) -> Any:
    """Draw one horizontal bar for each name, in the order of the values."""
    names = sorted(values, key=lambda name: values[name])
    lengths = [values[name] for name in names]
    if _is_plotly(engine):
        import plotly.graph_objects as go

        return go.Figure([go.Bar(x=lengths, y=names, orientation="h")], {"xaxis": {"title": xlabel}})
    figure, (axes,) = _new_notebook_figure(height=1.5 + 0.25 * len(names))
    axes.barh(names, lengths)
    axes.set(xlabel=xlabel)
    axes.grid(alpha=0.3, axis="x")
    return figure


def plot_confusion(labels: Sequence[str], counts: np.ndarray, engine: Engine) -> Any:
    """Draw a confusion matrix. The color of a cell is its share of the true label; its number is a count."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    has_numbers = len(labels) <= MAX_NUMBERED_LABELS
    if _is_plotly(engine):
        import plotly.graph_objects as go

        text = {"text": counts, "texttemplate": "%{text}"} if has_numbers else {}
        heatmap = go.Heatmap(z=shares, x=list(labels), y=list(labels), zmin=0, zmax=1, colorscale="Blues", **text)
        titles = {"xaxis": {"title": "predicted"}, "yaxis": {"title": "true", "autorange": "reversed"}}
        return go.Figure([heatmap], titles)
    size = 2.5 + 0.45 * min(len(labels), 30)
    figure, (axes,) = _new_notebook_figure(width=size + 1, height=size)
    figure.colorbar(axes.imshow(shares, cmap="Blues", vmin=0, vmax=1), label="share of the true label")
    ticks = range(len(labels))
    axes.set_xticks(ticks, labels, rotation=45, ha="right")
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="predicted", ylabel="true")
    for i, j in np.ndindex(counts.shape) if has_numbers else ():
        axes.text(j, i, str(counts[i, j]), ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
    return figure


def _is_plotly(engine: Engine) -> bool:
    if engine not in ("matplotlib", "plotly"):
        raise ConfigError(f"engine is {engine!r}; expected 'matplotlib' or 'plotly'.")
    if engine == "matplotlib":
        return False
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"engine='plotly' needs plotly, which is not installed. Run: {install_command('report')}"
        ) from None
    return True


def _new_notebook_figure(width: float = 6.4, height: float = 4.0) -> tuple[Any, list[Any]]:
    from matplotlib import pyplot

    # Loads the backend, which tells a notebook how to show figures.
    pyplot.draw_if_interactive()  # type: ignore[no-untyped-call]
    return new_figure(width=width, height=height)
