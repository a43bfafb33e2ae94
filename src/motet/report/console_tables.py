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
    metric = next(iter(summaries.values()))["primary_metric"]
    has_dev = any(summary.get("dev_best") for summary in summaries.values())
    table = Table(title=make_printable(title), title_justify="left", header_style="bold")
    table.add_column("method")
    has_initial = any(summary.get("initial") for summary in summaries.values())
    initial_column = ["before"] if has_initial else []
    dev_column = ["best on dev"] if has_dev else []
    columns = [*initial_column, metric, "best", *dev_column]
    client_columns = ["clients: mean ± std", "worst 10 %"]
    is_personal = next(iter(summaries.values())).get("primary_metric_split") == "local"
    if is_personal:  # personal models are deployed on each client's texts, so that number comes first
        columns = [f"{name}, global test" if name == metric else name for name in columns]
    ordered = [*client_columns, *columns] if is_personal else [*columns, *client_columns]
    for name in (*ordered, "MB up", "MB down", "seconds"):
        table.add_column(name, justify="right")
    for name, summary in summaries.items():
        traffic = summary["bytes"]
        scores = [
            *([_format_score(summary.get("initial", {}), metric)] if has_initial else []),
            _format_score(summary["final"], metric),
            _format_score(summary["best"], metric),
            *([_format_dev_best(summary, metric)] if has_dev else []),
        ]
        clients = _format_clients(summary["clients_final"])
        table.add_row(
            make_printable(name),
            *([*clients, *scores] if is_personal else [*scores, *clients]),
            format_megabytes(traffic["payload_up"]),
            format_megabytes(traffic["payload_down"]),
            f"{summary['seconds']:.0f}",
        )
    return table


def _format_clients(clients: Mapping[str, float]) -> list[str]:
    mean = f"{clients['mean']:.3f}" if "mean" in clients else "–"
    std = f" ± {clients['std']:.3f}" if "std" in clients else ""
    worst = f"{clients['worst_decile']:.3f}" if "worst_decile" in clients else "–"
    return [use_minus_signs(mean + std), use_minus_signs(worst)]


def _format_dev_best(summary: Mapping[str, Any], metric: str) -> str:
    best = summary.get("dev_best")
    if not best:
        return "–"
    if not best["test"]:  # evaluation.test=false: there is no other score
        return f"{_format_score(best['dev'], metric)} on dev (round {best['round']})"
    return f"{_format_score(best['test'], metric)} (round {best['round']})"


def _format_score(scores: Mapping[str, float], metric: str) -> str:
    return use_minus_signs(f"{scores[metric]:.3f}") if metric in scores else "–"


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
