"""Pictures of who has what: distances between clients, their labels, their sizes, their texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.report.figure_files import new_figure, save_figure

Axes = Any
MAX_DISTANCE = math.sqrt(math.log(2))  # the largest Jensen–Shannon distance there is
INK, FAINT = "#22303c", "#c9d1d9"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf", "#1b3a5c")
MAX_COLORED_CLIENTS = len(COLORS)  # clients that can be told apart by colour
MAX_NAMED_CLIENTS = 30  # clients whose names find room beside a picture


def plot_distances(axes: Axes, matrix: np.ndarray, title: str = "", clients: Sequence[str] = ()) -> Any:
    """The matrix of Jensen–Shannon distances, clients sorted; dark is far."""
    shown = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=MAX_DISTANCE, interpolation="nearest", aspect="equal")
    axes.set(xlabel="client", ylabel="client", title=title)
    _named_rows(axes, clients)
    if 0 < len(clients) <= MAX_NAMED_CLIENTS:
        axes.set_xticks(range(len(clients)), [_short(c, 18) for c in clients], fontsize=7, rotation=90)
        axes.set_xlabel("")
    else:
        _whole_numbers(axes.xaxis)
    return shown


def plot_labels(
    axes: Axes, ratios: np.ndarray, names: Sequence[str], title: str = "", clients: Sequence[str] = ()
) -> Any:
    """Each client's shares of the labels; dark is much."""
    highest = max(0.05, float(np.quantile(ratios.max(1, initial=0), 0.9))) if ratios.size else 1.0
    shown = axes.imshow(ratios, cmap="Blues", vmin=0, vmax=min(1, highest), interpolation="nearest", aspect="auto")
    axes.set(ylabel="client", title=title)
    _named_rows(axes, clients)
    if len(names) <= 40:
        size = 7 if len(names) <= 24 else 5
        axes.set_xticks(range(len(names)), [_short(n, 24) for n in names], rotation=90, fontsize=size)
    else:
        axes.set_xlabel(f"{len(names)} labels, the most frequent first")
    return shown


def plot_sizes(
    axes: Axes, groups: Mapping[str, np.ndarray], title: str = "", what: str = "training examples of a client"
) -> None:
    """A smoothed density a group, with a tick for each client below where there are few."""
    every = np.concatenate([np.asarray(g, np.float64) for g in groups.values()])
    grid = np.linspace(0, 1.25 * float(every.max()) + 1, 600)  # from zero, so that nearly equal sizes look nearly equal
    for number, (name, found) in enumerate(groups.items()):
        colour, values = f"C{number}", np.asarray(found, np.float64)
        curve = kernel_density(values, grid)
        axes.plot(grid, curve, color=colour, linewidth=1.8, label=name)
        axes.fill_between(grid, curve, color=colour, alpha=0.12, linewidth=0)
        if len(groups) == 1 and len(values) <= 500:
            axes.plot(values, np.full(len(values), -0.02 * curve.max()), "|", color=INK, alpha=0.5, markersize=7)
    axes.set(xlabel=what, ylabel="density", title=title)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    if len(groups) > 1:
        axes.legend(frameon=False, fontsize=9)


def plot_bars(
    axes: Axes, values: np.ndarray, names: Sequence[str], what: str = "training examples of a client"
) -> None:
    """A bar a client, where there are so few that each can be seen."""
    axes.barh(range(len(values)), values, color="C0", height=0.6)
    axes.set_yticks(range(len(values)), [_short(n, 24) for n in names], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=what)
    axes.spines[["top", "right"]].set_visible(False)


def kernel_density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Gaussian kernels of Silverman's width; sizes are not below zero, so what would fall there is folded back."""
    spread = min(
        float(values.std()), float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.34 or float(values.std())
    )
    width = max(0.9 * spread * len(values) ** -0.2, (grid[-1] - grid[0]) / 150)
    found = np.zeros_like(grid)
    different, times = np.unique(values, return_counts=True)  # a million clients have few different sizes
    for part, weight in zip(*(np.array_split(a, len(different) // 2000 + 1) for a in (different, times)), strict=True):
        for sign in (1, -1):
            found += np.exp(-0.5 * ((grid[:, None] - sign * part) / width) ** 2) @ weight
    curve: np.ndarray = found / (len(values) * width * math.sqrt(2 * math.pi))
    return curve


def plot_scatter(axes: Axes, points: np.ndarray, groups: np.ndarray, names: Sequence[str], title: str = "") -> None:
    """Texts in the plane, coloured by client, a large dot in the middle of each; `groups` below zero are others, in grey."""
    others = groups < 0
    axes.scatter(*points[others].T, s=5, color=FAINT, linewidths=0, label="others" if others.any() else None)
    rng = np.random.default_rng(0)
    coloured = np.flatnonzero(~others)
    rng.shuffle(coloured)  # so that no client is drawn over all others
    colours = np.array(COLORS)
    axes.scatter(*points[coloured].T, s=9, c=colours[groups[coloured] % MAX_COLORED_CLIENTS], alpha=0.55, linewidths=0)
    for k, name in enumerate(names):
        centre = np.median(points[groups == k], axis=0)[None] if (groups == k).any() else np.zeros((0, 2))
        axes.scatter(
            *centre.T,
            s=90,
            color=colours[k % MAX_COLORED_CLIENTS],
            edgecolors="white",
            linewidths=1.6,
            label=_short(name, 22),
        )
    if len(points):  # a few far away would press all others together
        low, high = np.quantile(points, [0.005, 0.995], axis=0)
        pad = 0.06 * (high - low) + 1e-9
        axes.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    axes.set(xlabel="first component", ylabel="second component", title=title)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2)


def draw_figure(
    path: Path, paint: Callable[[Axes], Any], bar: str | None = None, width: float = 5.6, height: float = 4.6
) -> None:
    """One picture; `bar` is what its colours mean."""
    figure, (axes,) = new_figure(width=width, height=height)
    shown = paint(axes)
    if bar is not None:
        figure.colorbar(shown, ax=axes, shrink=0.85, label=bar)
    save_figure(figure, path)


def draw_figure_row(
    path: Path, paints: Sequence[Callable[[Axes], Any]], bar: str | None, width: float, height: float
) -> None:
    """Pictures beside each other that share the meaning of their colours."""
    figure, panels = new_figure(len(paints), width=width, height=height)
    shown = [paint(axes) for paint, axes in zip(paints, panels, strict=True)]
    for axes in panels[1:]:
        axes.set_ylabel("")
    if bar is not None:
        figure.colorbar(shown[-1], ax=panels, shrink=0.85, label=bar, pad=0.01)
    save_figure(figure, path)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _named_rows(axes: Axes, clients: Sequence[str]) -> None:
    if 0 < len(clients) <= MAX_NAMED_CLIENTS:
        axes.set_yticks(range(len(clients)), [_short(c, 18) for c in clients], fontsize=7)
        axes.set_ylabel("")
    else:
        _whole_numbers(axes.yaxis)


def _whole_numbers(side: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    side.set_major_locator(MaxNLocator(nbins=6, integer=True))
