"""Labels of points in a scatter plot."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.text import Text

from motet.report.figure_files import new_figure
from motet.report.point_labels import LabeledPoint, draw_labels, spread


def test_labels_of_equal_points_do_not_cover_each_other() -> None:
    figure, (axes,) = new_figure()
    points = [LabeledPoint(1.0, y, f"method {i}", "C0") for i, y in enumerate([5.0] * 9 + [5.01, 9.0, 0.0])]
    axes.plot([p.x for p in points], [p.y for p in points], "o")
    draw_labels(axes, points)
    figure.canvas.draw()
    boxes = [Text.get_window_extent(annotation) for annotation in axes.texts]  # without its line
    assert len(boxes) == len(points)
    assert not any(first.overlaps(second) for first, second in combinations(boxes, 2))


@pytest.mark.parametrize("wanted", [[0.5] * 6, [0.0, 0.0, 1.0, 1.0], [0.2, 0.21, 0.9], [0.3] * 40])
def test_positions_keep_their_order_their_distance_and_the_range(wanted: list[float]) -> None:
    positions = spread(wanted, gap=0.1)
    gap = min(0.1, 1 / (len(wanted) - 1))
    assert (np.diff(positions) >= gap - 1e-9).all()
    assert positions.min() >= 0 and positions.max() <= 1 + 1e-9


def test_positions_that_are_far_apart_stay() -> None:
    assert spread([0.1, 0.5, 0.9], gap=0.1) == pytest.approx([0.1, 0.5, 0.9])
