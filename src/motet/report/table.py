"""The numbers of a run and its baselines, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def results_table(summaries: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    headline = next(iter(summaries.values()))["headline"]
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, where in (
        ("method", "left"), (headline, "right"), ("best", "right"), ("clients: mean ± std", "right"), ("worst tenth", "right"),
        ("MB up", "right"), ("MB down", "right"), ("seconds", "right"),
    ):  # fmt: skip
        table.add_column(name, justify=where)  # type: ignore[arg-type]
    for name, summary in summaries.items():
        own, moved = summary["clients_final"], summary["bytes"]
        table.add_row(
            name,
            f"{summary['final'].get(headline, float('nan')):.3f}",
            f"{summary['best'].get(headline, float('nan')):.3f}",
            (f"{own['mean']:.3f}" if own else "–") + (f" ± {own['std']:.3f}" if "std" in own else ""),
            f"{own['worst_decile']:.3f}" if "worst_decile" in own else "–",
            f"{moved['payload_up'] / 1e6:.1f}",
            f"{moved['payload_down'] / 1e6:.1f}",
            f"{summary['seconds']:.0f}",
        )
    return table
