"""Tables for the terminal: the results of a run next to its baselines, and two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from motet.report.number_text import use_minus_signs
from motet.report.power import SeedPlan
from motet.report.progress import format_megabytes
from motet.transport.display_text import make_printable


def build_results_table(summaries: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """Build a table with one row per summary (a run and its baselines)."""
    run = next(iter(summaries.values()))
    is_personal = run.get("primary_metric_split") == "local"
    rows = {name: _format_row(summary, run["primary_metric"], is_personal) for name, summary in summaries.items()}
    # Columns that some runs do not have, each with its entry of the summary
    optional = {"before": "initial", "best on test": "best", "best on dev": "dev_best"}
    empty = [name for name, entry in optional.items() if not any(s.get(entry) for s in summaries.values())]
    table = Table(title=make_printable(title), title_justify="left", header_style="bold")
    table.add_column("method")
    columns = [name for name in next(iter(rows.values())) if name not in empty]
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(make_printable(name), *(use_minus_signs(row[column]) for column in columns))
    return table


def _format_row(summary: Mapping[str, Any], metric: str, is_personal: bool) -> dict[str, str]:
    """Return the cells of a summary by column."""
    clients = summary["clients_final"]
    std = f" ± {clients['std']:.3f}" if "std" in clients else ""
    own = {
        "clients: mean ± std": _format_score(clients, "mean") + std,
        "worst 10 %": _format_score(clients, "worst_decile"),
    }
    scores = {
        "before": _format_score(summary.get("initial", {}), metric),
        f"{metric}, global test" if is_personal else metric: _format_score(summary["final"], metric),
        "best on test": _format_score(summary["best"], metric),
        "best on dev": _format_dev_best(summary, metric),
    }
    costs = {
        "MB up": format_megabytes(summary["bytes"]["payload_up"]),
        "MB down": format_megabytes(summary["bytes"]["payload_down"]),
        "seconds": f"{summary['seconds']:.0f}",
    }
    # Personal models are deployed on each client's texts, so that number comes first.
    return {**own, **scores, **costs} if is_personal else {**scores, **own, **costs}


def _format_dev_best(summary: Mapping[str, Any], metric: str) -> str:
    best = summary.get("dev_best")
    if not best:
        return "–"
    if not best["test"]:  # evaluation.test=false: there is no other score
        return f"{_format_score(best['dev'], metric)} on dev (round {best['round']})"
    return f"{_format_score(best['test'], metric)} (round {best['round']})"


def _format_score(scores: Mapping[str, float], metric: str) -> str:
    return f"{scores[metric]:.3f}" if metric in scores else "–"


def build_settings_table(settings: Sequence[tuple[str, str, str]], names: tuple[str, str]) -> Table:
    """Build a table of the settings in which two runs differ."""
    table = Table(title="Different settings", title_justify="left", header_style="bold")
    for name in ("setting", *map(make_printable, names)):
        table.add_column(name, overflow="fold")
    for row in settings:
        table.add_row(*map(make_printable, row))
    return table


def build_comparison_table(results: Sequence[tuple[str, float | None, float | None]], names: tuple[str, str]) -> Table:
    """Build a table of the results of two runs, with the difference (second − first)."""
    table = Table(title="Results", title_justify="left", header_style="bold")
    table.add_column("metric")
    for name in (*map(make_printable, names), "difference"):
        table.add_column(name, justify="right")
    for name, first, second in results:
        difference = None if first is None or second is None else round(second - first, 6)
        numbers = [f"{value:.4g}" if value is not None else "–" for value in (first, second)]
        numbers.append(f"{difference:+.4g}" if difference else "–" if difference is None else "0")
        table.add_row(make_printable(name), *map(use_minus_signs, numbers))
    return table


def build_power_table(plans: Sequence[SeedPlan], difference: float) -> Table:
    """Build a table with the number of seeds that each column needs."""
    unit = "point" if difference == 1 else "points"
    table = Table(title=f"Seeds for a difference of {difference:g} {unit}", title_justify="left", header_style="bold")
    table.add_column("column", overflow="fold")
    for name in ("seeds so far", "deviation between seeds", "error from the test set", "seeds", "for the worst pair"):
        table.add_column(name, justify="right")
    for plan in plans:
        table.add_row(make_printable(plan.column), *plan.format_cells())
    return table
