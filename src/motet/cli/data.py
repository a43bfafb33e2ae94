"""Corpora: motet data build, motet data show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import app, handle_errors

data_app = typer.Typer(help="Corpora: read once, kept in one file.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.command("build")
@handle_errors
def data_build(
    name: Annotated[str, typer.Argument(help="A corpus (see: motet list datasets), or a file or folder of your own.")],
    to: Annotated[Path, typer.Option(help="The HDF5 file to write.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[data.key=value]...", help="As in a recipe: data.text=body")
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", help="The folder with the corpus's original files.")] = None,
    layout: Annotated[
        str, typer.Option(help="motet (columns; fast) or fednlp (as FedNLP publishes its data).")
    ] = "motet",
) -> None:
    """Read a corpus once and keep it in one file that loads in seconds: data.path=FILE.h5."""
    from motet.experiment.commands.corpus_commands import build_store

    typer.echo(build_store(name, source, to, layout, settings or []))


@data_app.command("show")
@handle_errors
def data_show(
    file: Annotated[Path, typer.Argument(help="A store, or any file a recipe's data.path may name.")],
) -> None:
    """What is in a corpus: task, rows, columns, labels, clients, a few examples."""
    from motet.experiment.commands.corpus_commands import describe_corpus

    typer.echo(describe_corpus(file))
