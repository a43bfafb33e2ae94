"""Partitions: motet partition make, show, figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli.app import Settings, app, handle_errors

if TYPE_CHECKING:
    from motet.report.html_page import PageTable

partition_app = typer.Typer(help="Who has which examples: made, kept, looked at.", no_args_is_help=True)
app.add_typer(partition_app, name="partition")

CorpusName = Annotated[
    str, typer.Argument(help="A corpus (see: motet list datasets), or a file or folder of your own.")
]
Folder = Annotated[Path | None, typer.Option("--from", help="The folder with the corpus's original files.")]
Seed = Annotated[int, typer.Option(help="As a recipe's seed: the same one gives the same partition.")]
Clients = Annotated[int | None, typer.Option(help="How many clients.")]


@partition_app.command("make")
@handle_errors
def partition_make(
    corpus: CorpusName,
    settings: Settings = None,
    strategy: Annotated[str, typer.Option(help="How to divide (see: motet list partitions).")] = "label",
    clients: Clients = None,
    alpha: Annotated[float | None, typer.Option(help="Of label shift and its kin: small, few labels a client.")] = None,
    beta: Annotated[float | None, typer.Option(help="Of quantity shift: small, very different sizes.")] = None,
    seed: Seed = 42,
    source: Folder = None,
    to: Annotated[Path | None, typer.Option(help="The file. Default: partitions/<corpus>-<strategy>.h5")] = None,
    layout: Annotated[str, typer.Option(help="motet, or fednlp (as FedNLP publishes its partitions).")] = "motet",
) -> None:
    """Divide a corpus over clients and keep that in a file: partition.type=file partition.path=FILE.

    Further options of a strategy are given as in a recipe: partition.by=length partition.local_test=0.2 data.limit=1000
    """
    from motet.experiment.commands.partition_commands import CorpusSource, make_partition
    from motet.experiment.recipe.run_config import ComponentConfig

    where = CorpusSource.from_overrides(corpus, source, settings or [], seed)
    named = {"clients": clients, "alpha": alpha, "beta": beta}
    options = {**where.settings.get("partition", {}), **{k: v for k, v in named.items() if v is not None}}
    path, said = make_partition(where, ComponentConfig(str(options.pop("type", strategy)), options), to, layout)
    typer.echo(said)
    typer.echo(f"Look at it: motet partition show {path}   Use it: partition.type=file partition.path={path}")


@partition_app.command("show")
@handle_errors
def partition_show(
    file: Annotated[Path, typer.Argument(help="A partition file: of motet partition make, or FedNLP's.")],
    settings: Settings = None,
    name: Annotated[str | None, typer.Option(help="Which partition of a FedNLP file.")] = None,
    corpus: Annotated[str | None, typer.Option(help="The corpus, where the file does not say it.")] = None,
    source: Folder = None,
    seed: Seed = 42,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the pictures and the page. Default: beside the file.")
    ] = None,
) -> None:
    """Numbers, and pictures as PNG and in one HTML page: distances between clients, labels, sizes, texts."""
    from motet.experiment.commands.partition_commands import CorpusSource, describe_partition, open_partition
    from motet.experiment.commands.partition_report import write_partition_report

    given = None if corpus is None else CorpusSource.from_overrides(corpus, source, settings or [], seed)
    made, read = open_partition(file, name, given)
    page, table = write_partition_report(made, read, to or file.with_suffix(""))
    typer.echo(describe_partition(made, read))
    _print(table)
    typer.echo(f"Pictures: {page.parent}/*.png   all on one page: {page}")


@partition_app.command("figure")
@handle_errors
def partition_figure(
    which: Annotated[str, typer.Argument(metavar="FIGURE", help="distances, labels, quantities or domains")],
    corpus: CorpusName,
    settings: Settings = None,
    clients: Annotated[int, typer.Option(help="How many clients.")] = 100,
    seed: Seed = 42,
    source: Folder = None,
    to: Annotated[Path | None, typer.Option(help="The PNG. Default: figures/<figure>-<corpus>.png")] = None,
) -> None:
    """A figure of the papers for a corpus: distances or labels at four α, sizes at four β, domains in the plane."""
    from motet.core import rng
    from motet.experiment.commands.partition_commands import CorpusSource
    from motet.experiment.commands.partition_figures import draw_paper_figure

    read = CorpusSource.from_overrides(corpus, source, settings or [], seed).load()
    path = to or Path("figures") / f"{which}-{read.name}.png"
    said = draw_paper_figure(which, read, rng.Seed(seed), clients, path)
    typer.echo(f"{path}: {said}")


def _print(table: PageTable) -> None:
    from rich.console import Console
    from rich.table import Table as Printed

    shown: Any = Printed(box=None, pad_edge=False)
    for number, head in enumerate(table.head):
        shown.add_column(head, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*row)
    Console(width=100, highlight=False).print(shown)
