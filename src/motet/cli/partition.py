"""Commands for partitions: motet partition make, show, figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import DATA, CorpusName, SourceFolder, app, handle_errors
from motet.cli.terminal import create_console, echo

if TYPE_CHECKING:
    from motet.report.html_page import PageTable

partition_app = typer.Typer(help="Divide a corpus among clients, and inspect the result.", no_args_is_help=True)
app.add_typer(partition_app, name="partition", rich_help_panel=DATA)

PartitionSettings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SECTION.KEY=VALUE", help="Settings as in a recipe, e.g. partition.local_test=0.2 data.limit=1000."
    ),
]
RandomSeed = Annotated[int, typer.Option(help="Random seed. A recipe with the same seed makes the same partition.")]
ClientCount = Annotated[int | None, typer.Option(help="Number of clients.")]


@partition_app.command("make")
@handle_errors
def partition_make(
    corpus: CorpusName,
    settings: PartitionSettings = None,
    strategy: Annotated[str, typer.Option(help="Partition strategy (see: motet list partitions).")] = "label",
    clients: ClientCount = None,
    alpha: Annotated[float | None, typer.Option(help="Dirichlet concentration; smaller is more skewed.")] = None,
    beta: Annotated[
        float | None, typer.Option(help="Dirichlet concentration of client sizes; smaller is more uneven.")
    ] = None,
    seed: RandomSeed = 42,
    source: SourceFolder = None,
    to: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="partitions/CORPUS-STRATEGY.h5")
    ] = None,
    layout: Annotated[
        str, typer.Option(help="motet or fednlp (the layout of FedNLP's published partitions).")
    ] = "motet",
) -> None:
    """Divide a corpus among clients, and store the partition. Use it with partition.type=file partition.path=FILE."""
    from motet.experiment.commands.partition_commands import make_partition, parse_settings
    from motet.experiment.recipe.corpus_source import CorpusSource
    from motet.experiment.recipe.run_config import ComponentConfig

    given = parse_settings(settings or [])
    config = ComponentConfig.from_settings(given.get("partition"), strategy, "partition")
    flags = {"clients": clients, "alpha": alpha, "beta": beta}
    options = {**config.options, **{name: value for name, value in flags.items() if value is not None}}
    data = CorpusSource.from_settings(corpus, source, given, seed)
    path, message = make_partition(data, ComponentConfig(config.type, options), to, layout)
    echo(message)
    echo(f"Inspect it: motet partition show {path}   Use it: partition.type=file partition.path={path}")


@partition_app.command("show")
@handle_errors
def partition_show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A partition file from motet partition make or from FedNLP.")
    ],
    settings: PartitionSettings = None,
    name: Annotated[str | None, typer.Option(help="Name of the partition in a FedNLP file.")] = None,
    corpus: Annotated[str | None, typer.Option(help="The corpus, if the file does not name it.")] = None,
    source: SourceFolder = None,
    seed: RandomSeed = 42,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the figures and the HTML page.", show_default="next to the file")
    ] = None,
) -> None:
    """Show statistics of a partition, and draw the clients' distances, labels, sizes and texts (PNG and HTML)."""
    from motet.experiment.commands.partition_commands import describe_partition, open_partition, parse_settings
    from motet.experiment.commands.partition_report import write_partition_report
    from motet.experiment.recipe.corpus_source import CorpusSource

    given = parse_settings(settings or [])
    data = None if corpus is None else CorpusSource.from_settings(corpus, source, given, seed)
    partition, loaded_corpus = open_partition(file, name, data)
    page, table = write_partition_report(partition, loaded_corpus, to or file.with_suffix(""))
    echo(describe_partition(partition, loaded_corpus))
    _print_table(table)
    echo(f"Figures: {page.parent}/*.png   HTML page: {page}")


@partition_app.command("figure")
@handle_errors
def partition_figure(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help="distances, labels, quantities or domains.")],
    corpus: CorpusName,
    settings: PartitionSettings = None,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 100,
    seed: RandomSeed = 42,
    source: SourceFolder = None,
    to: Annotated[
        Path | None, typer.Option(help="PNG file to write.", show_default="figures/FIGURE-CORPUS.png")
    ] = None,
) -> None:
    """Draw a figure of the papers for a corpus: distances or labels at four α, sizes at four β, or domains in 2D."""
    from motet.core import rng
    from motet.experiment.commands.partition_commands import parse_settings
    from motet.experiment.commands.partition_figures import draw_paper_figure
    from motet.experiment.recipe.corpus_source import CorpusSource

    loaded_corpus = CorpusSource.from_settings(corpus, source, parse_settings(settings or []), seed).load()
    path = to or Path("figures") / f"{figure}-{loaded_corpus.name}.png"
    message = draw_paper_figure(figure, loaded_corpus, rng.Seed(seed), clients, path)
    echo(f"{path}: {message}")


def _print_table(table: PageTable) -> None:
    from rich.table import Table

    from motet.transport.display_text import make_printable

    console_table = Table(box=None, pad_edge=False)
    for index, heading in enumerate(table.headings):
        console_table.add_column(heading, justify="right" if index else "left")
    for row in table.rows:
        console_table.add_row(*map(make_printable, row))
    create_console(100).print(console_table)
