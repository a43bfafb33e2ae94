"""The numbers of a run and its baselines, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from motet.report.progress import format_megabytes


def build_results_table(summaries: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    primary_metric = next(iter(summaries.values()))["headline"]
    table = Table(title=title, title_justify="left", header_style="bold")
    dev = any(summary.get("dev_best") for summary in summaries.values())
    table.add_column("method")
    chosen = ["best on dev"] if dev else []
    for name in (primary_metric, "best", *chosen, "clients: mean ± std", "worst tenth", "MB up", "MB down", "seconds"):
        table.add_column(name, justify="right")
    for name, summary in summaries.items():
        own, moved = summary["clients_final"], summary["bytes"]
        table.add_row(
            name,
            f"{summary['final'].get(primary_metric, float('nan')):.3f}",
            f"{summary['best'].get(primary_metric, float('nan')):.3f}",
            *([_chosen(summary, primary_metric)] if dev else []),
            (f"{own['mean']:.3f}" if own else "–") + (f" ± {own['std']:.3f}" if "std" in own else ""),
            f"{own['worst_decile']:.3f}" if "worst_decile" in own else "–",
            format_megabytes(moved["payload_up"]),
            format_megabytes(moved["payload_down"]),
            f"{summary['seconds']:.0f}",
        )
    return table


def _chosen(summary: Mapping[str, Any], primary_metric: str) -> str:
    found = summary.get("dev_best")
    return f"{found['test'].get(primary_metric, float('nan')):.3f} (round {found['round']})" if found else "–"


def build_settings_table(settings: Sequence[tuple[str, str, str]], names: tuple[str, str]) -> Table:
    """Settings that two runs do not share."""
    table = Table(title="Settings that differ", title_justify="left", header_style="bold")
    for name in ("setting", *names):
        table.add_column(name, overflow="fold")
    for row in settings:
        table.add_row(*row)
    return table


def build_comparison_table(results: Sequence[tuple[str, float | None, float | None]], names: tuple[str, str]) -> Table:
    """Two runs' numbers, and by how much the second is more."""
    table = Table(title="Results", title_justify="left", header_style="bold")
    table.add_column("what")
    for name in (*names, "difference"):
        table.add_column(name, justify="right")
    for name, one, two in results:
        change = f"{two - one:+.4g}" if one is not None and two is not None else "–"
        table.add_row(name, *("–" if v is None else f"{v:.4g}" for v in (one, two)), change)
    return table
