"""The command motet advise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import RESULTS, Settings, SourceFolder, app, handle_errors
from motet.cli.terminal import echo

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A corpus (see: motet list datasets), your own file, or a recipe."),
]
Results = Annotated[
    Path | None,
    typer.Option(help="Folder of a motet bench, or its advice.json.", show_default="the results that Motet ships"),
]


@app.command(rich_help_panel=RESULTS)
@handle_errors
def advise(
    data: Data,
    settings: Settings = None,
    results: Results = None,
    source: SourceFolder = None,
) -> None:
    """Show which methods were best in the benchmark settings most similar to your data, and how certain that is."""
    from motet.benchmark.advice import describe_advice
    from motet.benchmark.measured_settings import SettingFeatures, load_settings
    from motet.experiment.commands.partition_commands import describe_division, read_division

    measured = load_settings(results)
    division = read_division(data, source, settings or [])
    echo(describe_advice(SettingFeatures(**describe_division(*division)), measured))
