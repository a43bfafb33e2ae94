"""Runs: run, resume, check, list, export."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli.app import Recipe, RunFolder, Settings, app, handle_errors

if TYPE_CHECKING:
    from motet.experiment.commands.run_folder import FinishedRun


@app.command()
@handle_errors
def run(
    recipe: Recipe = "quickstart",
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. Default: runs/<recipe>-<number>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    transport: Annotated[
        str | None, typer.Option(help="Short for transport.type=… (see: motet list transports).")
    ] = None,
) -> None:
    """Train as a recipe says; results, curves, checkpoint and model go to a folder."""
    from motet.experiment.commands.run_folder import load_config, new_folder

    if "=" in recipe:  # no recipe was named: settings for the quickstart
        recipe, settings = "quickstart", [recipe, *(settings or [])]
    chosen = [f"transport.type={transport}"] if transport else []
    config = _recipe(recipe, [*chosen, *(settings or [])])
    folder = out or new_folder(config.recipe)
    if resume:
        config = load_config(folder)
    _perform(config, folder, resume)


@app.command("resume")
@handle_errors
def resume_run(folder: RunFolder) -> None:
    """Go on with a run that was interrupted; it ends as if it never had been."""
    from motet.experiment.commands.run_folder import load_config

    _perform(load_config(folder), folder, resume=True)


@app.command()
@handle_errors
def check(recipe: Recipe = "quickstart", settings: Settings = None) -> None:
    """Look at everything before round 1: data, tokenizer, a few steps, memory, bytes a round, time."""
    from motet.experiment.build.component_builders import resolve_defaults
    from motet.experiment.build.federation_builder import build_federation
    from motet.experiment.commands.dry_run import dry_run

    if "=" in recipe:
        recipe, settings = "quickstart", [recipe, *(settings or [])]
    config = resolve_defaults(_recipe(recipe, settings))
    found = dry_run(config, build_federation(config))
    width = max(14, *map(len, found.facts))
    for name, fact in found.facts.items():
        typer.echo(f"{name:{width}} {fact}")
    for warning in found.warnings:
        typer.secho(f"note: {warning}", fg="yellow")
    typer.echo("All is well.")


@app.command("list")
@handle_errors
def list_entries(
    what: Annotated[
        str, typer.Argument(help="algorithms, tasks, datasets, models, partitions, codecs, transports, recipes, suites")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """What there is to choose from."""
    from motet.experiment.commands.listings import list_entries

    entries = list_entries(what)
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for name in entries)
    for name, said in entries.items():
        typer.echo(f"{name:{width}}  {said}")


@app.command()
@handle_errors
def export(
    folder: RunFolder,
    to: Annotated[Path, typer.Option(help="Where the model directory goes.")],
    client: Annotated[str | None, typer.Option(help="This client's own model, as it would deploy it.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every client's own model, in a folder each.")] = False,
) -> None:
    """Write a run's model, or its clients' own ones, as directories that transformers (for a BiLSTM: Motet) loads."""
    from motet.core.errors import ConfigError
    from motet.experiment.commands.model_export import loading_code, needs_motet
    from motet.experiment.commands.run_folder import export_models

    if every and client is not None:
        raise ConfigError(f"export: --client {client} is one model and --all is everybody's; choose one of them.")
    places = export_models(folder, to, client, every)
    typer.echo(f"{len(places)} models are in {to}, a folder for each client." if every else f"The model is in {to}.")
    if odd := [place for place in places if needs_motet(place)]:
        typer.echo(f"{len(odd)} of them transformers does not know, being BiLSTMs: {loading_code('', odd[0])}")


def _recipe(name: str, settings: list[str] | None) -> Any:
    from motet.experiment.recipe.recipe_files import load_recipe

    return load_recipe(name, settings or [])


def _perform(config: Any, folder: Path, resume: bool) -> None:
    from rich.console import Console

    from motet.experiment.commands.run_folder import run_recipe
    from motet.experiment.deploy.mpi_launch import run_worker_rank
    from motet.report.progress import create_progress

    if run_worker_rank(config):  # one of a cluster's workers; what there is to see is in rank 0
        return
    try:
        finished = run_recipe(config, folder, resume=resume, callback=create_progress(Console()))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"motet resume {folder}") from None
    print_results(finished)


def print_results(finished: FinishedRun) -> None:
    from rich.console import Console

    from motet.experiment.commands.model_export import loading_code
    from motet.experiment.commands.run_folder import draw_figures
    from motet.report.console_tables import build_results_table

    draw_figures(finished)
    summary = finished.summary
    rows = {summary["algorithm"]: summary, **finished.baselines}
    console = Console(width=None if sys.stdout.isatty() else 120)
    told = f"{summary['recipe']}: {summary['dataset']}, {summary['model']}, {summary['clients']} clients"
    console.print(build_results_table(rows, told))
    plain: Any = {"highlight": False, "markup": False, "soft_wrap": True}
    console.print(f"Results: {finished.folder}/  curves: {finished.folder / 'curves.png'}", **plain)
    if summary["network_seconds"] is not None:
        console.print(f"Over the emulated network its messages take {summary['network_seconds']:,.1f} s.", **plain)
    if (finished.folder / "model").exists():
        console.print(f"The model: {loading_code(summary['task'], finished.folder / 'model')}", **plain)
