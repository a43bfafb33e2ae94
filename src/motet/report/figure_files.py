"""Figures as files, drawn without pyplot, so that plots of the calling program are not affected."""

from __future__ import annotations

from collections.abc import Iterable
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


def collect_handles(panels: Iterable[Any]) -> dict[str, Any]:
    """Return the handles of a common legend by label, each label once."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return handles


def add_legend_below(figure: Any) -> None:
    """Add one legend for all panels, below them."""
    handles = collect_handles(figure.axes)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)


def save_figure(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # labels and names have dollars, but no formulas
    with rc_context({"text.parse_math": False}):  # for texts that are created only now
        figure.savefig(path, bbox_inches="tight", pad_inches=0.1, metadata={"Software": None})
