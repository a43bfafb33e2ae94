"""Commands for corpora: motet data build, motet data show, motet data inspect; and motet cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DATA, CorpusName, SourceFolder, app, handle_errors
from motet.cli.fact_table import print_inspection, print_warnings
from motet.cli.terminal import echo

data_app = typer.Typer(help="Build dataset files from corpora, and inspect them.", no_args_is_help=True)
DataSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA.KEY=VALUE", help="Data settings as in a recipe, e.g. data.text=body."),
]
app.add_typer(data_app, name="data", rich_help_panel=DATA)


@data_app.command("build")
@handle_errors
def data_build(
    name: CorpusName,
    to: Annotated[Path, typer.Option(help="HDF5 file to write.")],
    settings: DataSettings = None,
    source: SourceFolder = None,
    layout: Annotated[
        str, typer.Option(help="motet (by column, fast) or fednlp (the layout of FedNLP's published data).")
    ] = "motet",
) -> None:
    """Read a corpus and store it in one file that loads fast. Use it with data.path=FILE."""
    from motet.experiment.commands.corpus_commands import build_store

    echo(build_store(name, source, to, layout, settings or [], print_inspection))


@data_app.command("show")
@handle_errors
def data_show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A dataset file, or any file or folder that data.path accepts.")
    ],
) -> None:
    """Show the contents of a corpus: task, size, columns, labels, clients and a few examples."""
    from motet.experiment.commands.corpus_commands import describe_corpus

    echo(describe_corpus(file))


@data_app.command("inspect")
@handle_errors
def data_inspect(
    path: CorpusName,
    settings: DataSettings = None,
    source: SourceFolder = None,
    to: Annotated[Path | None, typer.Option(help="File to write the proposed recipe to.")] = None,
) -> None:
    """Inspect any file or folder: duplicates, overlap of training and test rows, labels, encoding. Propose a recipe."""
    from motet.core.errors import ConfigError
    from motet.experiment.commands.recipe_proposal import inspect_path

    if to is not None and to.exists():
        raise ConfigError(f"--to: '{to}' exists already; choose a new file.")
    result = inspect_path(path, source, settings or [])
    print_inspection(result.inspection, left_out="unused columns" if result.unused else "")
    if result.guess:
        echo(f"The columns are a guess: {result.guess}. If it is wrong, set the right ones.")
    if result.unused:
        echo(f"Columns that are not used: {result.unused}.")
    for mistake in result.mistakes:
        echo(f"mistake ({mistake.kind}): {mistake}", color="red")
    for mistake in result.accepted:
        echo(f"accepted ({mistake.kind}): {mistake.message}")
    print_warnings(result.warnings)
    if result.obstacle and to is not None:
        raise ConfigError(f"--to: {to} was not written. {result.obstacle}")
    if result.obstacle:
        echo(result.obstacle)
    elif to is None:
        echo(f"# Proposed recipe\n{result.recipe}".rstrip())
    else:
        to.write_text(result.recipe, "utf-8")
        echo(f"Recipe: {to}. Check it with: motet check {to}")


@app.command(rich_help_panel=DATA)
@handle_errors
def cache(clear: Annotated[bool, typer.Option("--clear", help="Delete all entries.")] = False) -> None:
    """Show what is cached on disk for faster starts: tokenized texts, partitions that encode texts, and GPU kernels."""
    from motet.experiment.build.cache_folder import cache_folder, clear_cache, measure_cache

    folder = cache_folder()
    if folder is None:
        echo("The cache is disabled: MOTET_CACHE is empty.")
        return
    uses = clear_cache() if clear else measure_cache()
    echo(f"{'Deleted from' if clear else 'Cache:'} {folder} (set MOTET_CACHE to use another folder)")
    for kind, use in uses.items():
        echo(f"  {kind:11} {use.entries:5} entries {use.size / 1e6:10,.1f} MB")
