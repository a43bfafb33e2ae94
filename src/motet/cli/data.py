"""Commands for corpora: motet data build, motet data show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DATA, CorpusName, SourceFolder, app, handle_errors

data_app = typer.Typer(help="Build dataset files from corpora, and inspect them.", no_args_is_help=True)
app.add_typer(data_app, name="data", rich_help_panel=DATA)


@data_app.command("build")
@handle_errors
def data_build(
    name: CorpusName,
    to: Annotated[Path, typer.Option(help="HDF5 file to write.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA.KEY=VALUE", help="Data settings as in a recipe, e.g. data.text=body."),
    ] = None,
    source: SourceFolder = None,
    layout: Annotated[
        str, typer.Option(help="motet (by column, fast) or fednlp (the layout of FedNLP's published data).")
    ] = "motet",
) -> None:
    """Read a corpus and store it in one file that loads fast. Use it with data.path=FILE."""
    from motet.experiment.commands.corpus_commands import build_store

    typer.echo(build_store(name, source, to, layout, settings or []))


@data_app.command("show")
@handle_errors
def data_show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A dataset file, or any file or folder that data.path accepts.")
    ],
) -> None:
    """Show the contents of a corpus: task, size, columns, labels, clients and a few examples."""
    from motet.experiment.commands.corpus_commands import describe_corpus

    typer.echo(describe_corpus(file))
