"""Plots of a partition: distances between clients, their labels, their sizes and their texts.

The `plot_…` functions draw into existing axes; `draw_figure` and `draw_figure_grid` write files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.report.figure_files import new_figure, save_figure

Axes = Any
MAX_DISTANCE = math.sqrt(math.log(2))  # upper bound of the Jensen–Shannon distance
OTHERS_COLOR = "#c9d1d9"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf", "#1b3a5c")
MAX_COLORED_CLIENTS = len(COLORS)
SIZE_LABEL = "training examples per client"
MAX_NAMED_CLIENTS, MAX_NAMED_LABELS = 30, 40  # more names do not fit on an axis
NAME_SIZE, NAME_INCHES = 9, 0.19  # of a name on an axis: points, and the room that it needs


def fit_matrix(clients: int, columns: int) -> tuple[float, float]:
    """Return the width and height in inches at which the names of clients and columns can be read."""
    height = 2.2 + NAME_INCHES * clients if clients <= MAX_NAMED_CLIENTS else 0.0
    return max(5.6, fit_names(columns) + 2.4), max(4.6, height)


def fit_names(columns: int) -> float:
    """Return the inches that the names of columns need side by side; 0 if there are too many to show."""
    return NAME_INCHES * columns if columns <= MAX_NAMED_LABELS else 0.0


def plot_distances(axes: Axes, matrix: np.ndarray, title: str = "", clients: Sequence[str] = ()) -> Any:
    """Plot the matrix of Jensen–Shannon distances between clients. Dark is far."""
    image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=MAX_DISTANCE, interpolation="nearest", aspect="equal")
    axes.set(xlabel="client", ylabel="client", title=title)
    _name_rows(axes, clients)
    if 0 < len(clients) <= MAX_NAMED_CLIENTS:
        axes.set_xticks(range(len(clients)), [_shorten(c, 18) for c in clients], fontsize=NAME_SIZE, rotation=90)
        axes.set_xlabel("")
    else:
        _use_integer_ticks(axes.xaxis)
    return image


def plot_labels(
    axes: Axes, ratios: np.ndarray, names: Sequence[str], title: str = "", clients: Sequence[str] = ()
) -> Any:
    """Plot the share of each label at each client. Dark is high."""
    highest = max(0.05, float(np.quantile(ratios.max(1, initial=0), 0.9))) if ratios.size else 1.0
    image = axes.imshow(ratios, cmap="Blues", vmin=0, vmax=min(1, highest), interpolation="nearest", aspect="auto")
    axes.set(ylabel="client", title=title)
    _name_rows(axes, clients)
    if len(names) <= MAX_NAMED_LABELS:
        angle = 90 if sum(map(len, names)) > 40 else 0  # characters that fit side by side
        axes.set_xticks(range(len(names)), [_shorten(n, 24) for n in names], rotation=angle, fontsize=NAME_SIZE)
    else:
        axes.set_xlabel(f"{len(names)} labels, most frequent first")
    return image


def plot_sizes(axes: Axes, groups: Mapping[str, np.ndarray], title: str = "") -> None:
    """Plot the density of client sizes for each group, to compare groups. One group alone is a histogram."""
    all_sizes = np.concatenate([np.asarray(sizes, np.float64) for sizes in groups.values()])
    grid = np.linspace(0, 1.25 * float(all_sizes.max()) + 1, 600)  # starts at 0, so similar sizes look similar
    for index, (name, sizes) in enumerate(groups.items()):
        color, values = f"C{index}", np.asarray(sizes, np.float64)
        density = kernel_density(values, grid)
        axes.plot(grid, density, color=color, linewidth=1.8, label=name)
        axes.fill_between(grid, density, color=color, alpha=0.12, linewidth=0)
    axes.set(xlabel=SIZE_LABEL, ylabel="density", title=title)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def plot_histogram(axes: Axes, values: np.ndarray) -> None:
    """Plot how many clients have how many examples."""
    axes.hist(values, bins=min(40, max(8, math.isqrt(len(values)) * 2)), color="C0", edgecolor="white", linewidth=0.5)
    axes.set(xlabel=SIZE_LABEL, ylabel="clients", xlim=(0, None))
    _use_integer_ticks(axes.yaxis)
    axes.spines[["top", "right"]].set_visible(False)


def plot_bars(axes: Axes, values: np.ndarray, names: Sequence[str]) -> None:
    """Plot one bar per client."""
    axes.barh(range(len(values)), values, color="C0", height=0.6)
    axes.set_yticks(range(len(values)), [_shorten(n, 24) for n in names], fontsize=NAME_SIZE)
    axes.invert_yaxis()
    axes.set(xlabel=SIZE_LABEL)
    axes.spines[["top", "right"]].set_visible(False)


def kernel_density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Estimate the density of non-negative values with Gaussian kernels of Silverman's bandwidth.

    The mass that kernels put below zero is reflected.
    """
    std = float(values.std())
    spread = min(std, float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.34 or std)
    bandwidth = max(0.9 * spread * len(values) ** -0.2, (grid[-1] - grid[0]) / 150)
    total = np.zeros_like(grid)
    unique, counts = np.unique(values, return_counts=True)  # a million clients have few different sizes
    chunks = len(unique) // 2000 + 1
    for part, weights in zip(np.array_split(unique, chunks), np.array_split(counts, chunks), strict=True):
        for sign in (1, -1):
            total += np.exp(-0.5 * ((grid[:, None] - sign * part) / bandwidth) ** 2) @ weights
    density: np.ndarray = total / (len(values) * bandwidth * math.sqrt(2 * math.pi))
    return density


def plot_scatter(axes: Axes, points: np.ndarray, groups: np.ndarray, names: Sequence[str], title: str = "") -> None:
    """Plot texts in the plane, colored by client, with a large dot at the median of each client.

    `groups` holds the index of each text's client in `names`; negative numbers are other clients, in gray.
    """
    is_other = groups < 0
    label = "others" if is_other.any() else None
    axes.scatter(*points[is_other].T, s=5, color=OTHERS_COLOR, linewidths=0, label=label)
    order = np.flatnonzero(~is_other)
    np.random.default_rng(0).shuffle(order)  # otherwise the last client would cover the others
    colors = np.array(COLORS)
    axes.scatter(*points[order].T, s=9, c=colors[groups[order] % MAX_COLORED_CLIENTS], alpha=0.55, linewidths=0)
    for index, name in enumerate(names):
        client_points = points[groups == index]
        center = np.median(client_points, axis=0)[None] if len(client_points) else np.zeros((0, 2))
        style = {"color": colors[index % MAX_COLORED_CLIENTS], "edgecolors": "white", "linewidths": 1.6}
        axes.scatter(*center.T, s=90, label=_shorten(name, 22), **style)
    if len(points):  # ignore outliers, which would squeeze all other points together
        low, high = np.quantile(points, [0.005, 0.995], axis=0)
        pad = 0.06 * (high - low) + 1e-9
        axes.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    axes.set(xlabel="first component", ylabel="second component", title=title)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2)


def draw_figure(
    path: Path,
    plot: Callable[[Axes], Any],
    colorbar_label: str | None = None,
    width: float = 5.6,
    height: float = 4.6,
) -> None:
    """Draw one plot to a file, with a color bar if it has a label."""
    figure, (axes,) = new_figure(width=width, height=height)
    image = plot(axes)
    if colorbar_label is not None:
        figure.colorbar(image, ax=axes, shrink=0.85, label=colorbar_label)
    save_figure(figure, path)


def draw_figure_grid(
    path: Path, plots: Sequence[Callable[[Axes], Any]], colorbar_label: str, width: float, height: float
) -> None:
    """Draw plots with the same axes in lines of two, which fit on a page, with a common color bar."""
    figure, panels = new_figure(2, -(-len(plots) // 2), width=width, height=height)
    images = [plot(axes) for plot, axes in zip(plots, panels, strict=False)]
    for axes in panels[len(plots) :]:
        axes.axis("off")
    for axes in panels[1::2]:
        axes.set_ylabel("")
    for axes in panels[: max(0, len(plots) - 2)]:  # the panel below has the same names
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    figure.colorbar(images[-1], ax=panels, shrink=0.85, label=colorbar_label, pad=0.01)
    save_figure(figure, path)


def _shorten(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def _name_rows(axes: Axes, clients: Sequence[str]) -> None:
    if 0 < len(clients) <= MAX_NAMED_CLIENTS:
        axes.set_yticks(range(len(clients)), [_shorten(c, 18) for c in clients], fontsize=NAME_SIZE)
        axes.set_ylabel("")
    else:
        _use_integer_ticks(axes.yaxis)


def _use_integer_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
