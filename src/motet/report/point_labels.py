"""Labels of the points of a scatter plot that never cover each other, however close the points are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

FONT_SIZE = 7
_LINE_HEIGHT = 1.25 * FONT_SIZE  # points
_POINTS_PER_INCH = 72


class LabeledPoint(NamedTuple):
    """A point of a plot with its name."""

    x: float
    y: float
    label: str
    color: str


def draw_labels(axes: Any, points: Sequence[LabeledPoint]) -> None:
    """Write the labels to the right of the axes, each with a line to its point. Call it when the limits are final."""
    low, high = axes.get_ylim()
    height = axes.get_window_extent().height / axes.figure.dpi * _POINTS_PER_INCH
    ordered = sorted(points, key=lambda point: point.y)
    wanted = [(point.y - low) / (high - low) for point in ordered]
    for point, position in zip(ordered, spread(wanted, _LINE_HEIGHT / height), strict=True):
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=(1.04, position),
            textcoords="axes fraction",
            va="center",
            fontsize=FONT_SIZE,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "color": point.color, "linewidth": 0.6, "alpha": 0.7},
        )


def spread(wanted: Sequence[float], gap: float) -> np.ndarray:
    """Return the positions nearest to those wanted, in increasing order, that are at least `gap` apart and within 0 and 1.

    If they do not fit, they are evenly spaced over 0 to 1.
    """
    gap = min(gap, 1 / max(1, len(wanted) - 1))
    offsets = gap * np.arange(len(wanted))
    fitted = isotonic_regression(np.asarray(wanted) - offsets).x
    return np.asarray(np.clip(fitted, 0, 1 - gap * (len(wanted) - 1)) + offsets)
