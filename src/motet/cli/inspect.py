"""Looking at runs: motet report, motet compare, motet replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import RunFolder, app, handle_errors


@app.command()
@handle_errors
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN... | SUITE", help="Runs' folders, a benchmark's, or a suite's name.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write. Default: report.html in the first folder.")
    ] = None,
) -> None:
    """One self-contained HTML page: curves, bytes, fairness, divisions, configuration; opens anywhere, without network."""
    from motet.benchmark.benchmark_folder import default_folder, load_benchmark
    from motet.benchmark.benchmark_report_data import collect_benchmark_report
    from motet.experiment.commands.report_data import collect_run_reports
    from motet.report.web import write_report

    first = folders[0]
    for named in (default_folder(str(first), quick=False), default_folder(str(first), quick=True)):
        if not first.exists() and (named / "asked.json").exists():
            first = named
    path = out or first / "report.html"
    if (first / "asked.json").exists() and len(folders) == 1:
        benchmark = load_benchmark(first)
        write_report(path, benchmark.suite.title, *collect_benchmark_report(benchmark))
    else:
        runs = collect_run_reports(folders)
        write_report(
            path, " and ".join(f.name for f in folders[:3]) + (" and others" if len(folders) > 3 else ""), runs
        )
    typer.echo(f"The page: {path} ({path.stat().st_size / 1e6:.1f} MB; open it in a browser)")


@app.command()
@handle_errors
def compare(
    first: RunFolder,
    second: Annotated[Path, typer.Argument(metavar="RUN", help="Another run's folder.")],
) -> None:
    """What differs between two runs: their settings, their results, and whether the difference is more than chance."""
    from rich.console import Console

    from motet.experiment.commands.compare import compare_runs
    from motet.report.console_tables import build_comparison_table, build_settings_table

    found = compare_runs(first, second)
    console = Console(width=None if Console().is_terminal else 120)
    names = (str(first), str(second))
    if found.settings:
        console.print(build_settings_table(found.settings, names))
    else:
        typer.echo("The settings are the same.")
    console.print(build_comparison_table(found.results, names))
    typer.echo(found.verdict)


@app.command()
@handle_errors
def replay(
    folder: RunFolder,
    round: Annotated[int, typer.Option(help="The round, as metrics.jsonl counts: the first is 1.")],
    client: Annotated[str, typer.Option(help="The client's name.")],
) -> None:
    """Run one client's part of one round again, step by step, and say what came of it: for looking for what went wrong."""
    from motet.experiment.commands.replay import replay_client

    for line in replay_client(folder, round, client):
        typer.echo(line)
