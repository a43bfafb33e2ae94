"""Figures as files, drawn without pyplot, so that plots of the calling program are not affected."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def new_figure(
    columns: int = 1, rows: int = 1, width: float = 5.6, height: float = 4.6, sharey: bool = False
) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, each `width` by `height` inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel())


def save_figure(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # labels and names have dollars, but no formulas
    with rc_context({"text.parse_math": False}):  # for texts that are created only now
        figure.savefig(path, bbox_inches="tight", pad_inches=0.1, metadata={"Software": None})
