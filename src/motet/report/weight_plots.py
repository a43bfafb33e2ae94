"""Plot the weights of clients in a distillation, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motet.report.figure_files import new_figure, save_figure


def draw_weights(rows: Iterable[Mapping[str, Any]], title: str, path: Path) -> bool:
    """Draw the clients' weights and training losses against rounds. Return False if the run has no weights."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {"weight": {}, "loss": {}}
    for row in rows:
        if row["split"] == "distillation" and row["name"] in curves:
            curves[row["name"]].setdefault(row["who"], []).append((row["round"], row["value"]))
    if not curves["weight"]:
        return False
    from matplotlib.ticker import MaxNLocator

    figure, panels = new_figure(columns=2, width=4.5, height=3.6)
    for axes, (name, lines) in zip(panels, curves.items(), strict=True):
        for client, line in sorted(lines.items()):
            axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, label=client)
        axes.set(xlabel="round", ylabel="weight in the logit pool" if name == "weight" else "lowest training loss")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    if len(curves["weight"]) <= 12:
        panels[1].legend(frameon=False, fontsize=8)
    save_figure(figure, path)
    return True
