"""Draw what attacks on a run have shown, beside the ε that the run claims."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from motet.report.figure_files import new_figure, save_figure

MEASURED, ESTIMATED, CLAIMED = "#4c78a8", "#9ecae9", "#e45756"


def draw_privacy_audit(epsilons: Mapping[str, float], shares: Mapping[str, float], path: Path) -> None:
    """Draw the measured values of ε beside the claimed one, and the shares of tokens that were read from gradients."""
    figure, panels = new_figure(columns=2 if shares else 1, width=4.6, height=3.6)
    colors = [CLAIMED if "claimed" in name else ESTIMATED if "estimate" in name else MEASURED for name in epsilons]
    bars = panels[0].bar(list(epsilons), list(epsilons.values()), color=colors, width=0.6)
    panels[0].bar_label(bars, fmt="%.2f", padding=2)
    panels[0].set(ylabel="ε", title="Privacy loss: measured and claimed")
    if shares:
        colors = [ESTIMATED if name == "by chance" else MEASURED for name in shares]
        bars = panels[1].bar(list(shares), [100 * share for share in shares.values()], color=colors, width=0.6)
        panels[1].bar_label(bars, fmt="%.0f %%", padding=2)
        panels[1].set(ylabel="% of a client's tokens", ylim=(0, 112), title="Tokens read from gradients")
    for axes in panels:
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
