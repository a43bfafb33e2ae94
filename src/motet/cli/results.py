"""Commands that show the results of runs: report, compare, power, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import RESULTS, RunFolder, app, handle_errors
from motet.cli.terminal import create_console, echo


@app.command(rich_help_panel=RESULTS)
@handle_errors
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs, or one benchmark: its folder or the name of its suite."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default="report.html in the first folder")
    ] = None,
) -> None:
    """Write a self-contained HTML report: learning curves, traffic, fairness, data partition, settings."""
    from motet.benchmark.benchmark_folder import is_benchmark_folder, load_benchmark
    from motet.benchmark.benchmark_report_data import collect_benchmark_report
    from motet.experiment.commands.report_data import collect_run_reports, join_titles, require_metrics
    from motet.report.web import write_report

    first = _find_benchmark(folders[0]) if not folders[0].exists() else folders[0]
    path = out or first / "report.html"
    if is_benchmark_folder(first) and len(folders) == 1:
        benchmark = load_benchmark(first)
        write_report(path, benchmark.title, *collect_benchmark_report(benchmark))
    else:
        names = [folder.resolve().name for folder in folders]
        if len(set(names)) < len(names):
            names = [str(folder) for folder in folders]
        reports = collect_run_reports(dict(zip(names, folders, strict=True)))
        require_metrics(reports)
        write_report(path, join_titles(names), reports)
    echo(f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB). Open it in a browser.")


@app.command(rich_help_panel=RESULTS)
@handle_errors
def compare(
    first: RunFolder,
    second: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the other run.")],
) -> None:
    """Compare two runs: their settings, their results, and whether the difference is significant.

    To compare two methods, not only two trained models, pass two folders with the runs of at least five seeds each.
    """

    from motet.experiment.commands.compare import compare_runs
    from motet.report.console_tables import build_comparison_table, build_settings_table

    comparison = compare_runs(first, second)
    console = create_console(120)
    names = (str(first), str(second))
    if comparison.settings:
        console.print(build_settings_table(comparison.settings, names))
    else:
        echo("Both runs have the same settings.")
    console.print(build_comparison_table(comparison.results, names))
    echo(comparison.verdict)


@app.command(rich_help_panel=RESULTS)
@handle_errors
def power(
    target: Annotated[
        Path,
        typer.Argument(metavar="SUITE", help="A suite that has runs, the folder of its runs, or a folder of runs."),
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="[RUNS]", help="With a folder of runs: the runs of the other method.")
    ] = None,
    difference: Annotated[
        float, typer.Option(min=1e-6, help="The difference that you want to find, in percentage points.")
    ] = 1.0,
) -> None:
    """Estimate how many seeds you need to detect a difference between two methods, from the variance of existing runs."""

    from motet.benchmark.benchmark_folder import load_benchmark
    from motet.benchmark.seed_planning import plan_runs, plan_seeds
    from motet.report.console_tables import build_power_table
    from motet.report.power import describe_assumptions

    if other is not None:
        plans = [plan_runs(target, other, difference)]
    else:
        plans = plan_seeds(load_benchmark(target if target.exists() else _find_benchmark(target)), difference)
    console = create_console(120)
    console.print(build_power_table(plans, difference))
    echo(describe_assumptions(plans))


@app.command(rich_help_panel=RESULTS)
@handle_errors
def replay(
    folder: RunFolder,
    round: Annotated[int, typer.Option(help="Number of the round; the first is 1.")],
    client: Annotated[str, typer.Option(help="Name of the client.")],
) -> None:
    """Repeat the training of one client in one round and print what happened, to find out what went wrong."""
    from motet.experiment.commands.replay import replay_client

    for line in replay_client(folder, round, client):
        echo(line)


def _find_benchmark(suite: Path) -> Path:
    """Return the default folder of a suite's benchmark, or the argument itself if there is none."""
    from motet.benchmark.benchmark_folder import default_folder, is_benchmark_folder

    for quick in (False, True):
        folder = default_folder(str(suite), quick=quick)
        if is_benchmark_folder(folder):
            return folder
    return suite
