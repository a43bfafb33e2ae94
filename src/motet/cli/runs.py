"""Commands for runs: run, resume, check, list, schema, export."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import (
    DEFAULT_RECIPE,
    TRAINING,
    OutFolder,
    Recipe,
    Resume,
    RunFolder,
    Settings,
    StateKeySource,
    TrustRemoteCode,
    app,
    handle_errors,
    read_state_key,
    split_settings,
)
from motet.cli.fact_table import print_columns, print_facts, print_inspection, print_warnings
from motet.cli.log_format import LogFormat, create_run_progress, print_line, use_log_format
from motet.cli.terminal import create_console, echo

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from motet.experiment.commands.recipe_runner import FinishedRun
    from motet.experiment.recipe.run_config import RunConfig
    from motet.report.profiler import Profiler


@app.command(rich_help_panel=TRAINING)
@handle_errors
def run(
    recipe: Recipe = DEFAULT_RECIPE,
    settings: Settings = None,
    out: OutFolder = None,
    resume: Resume = False,
    transport: Annotated[
        str | None, typer.Option(help="Same as transport.type=… (see: motet list transports).")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time went; write trace.json (Perfetto) and profile.png.")
    ] = False,
    log_format: LogFormat = "text",
) -> None:
    """Train a recipe. Metrics, plots, a checkpoint and the model are saved in a folder."""
    use_log_format(log_format)
    with _start_profile(profile) as profiler:
        folder = _run_or_resume(recipe, settings, out, resume, transport, trust_remote_code)
    if profiler is not None and folder is not None:
        _print_profile(profiler, folder)


def _run_or_resume(
    recipe: str,
    settings: list[str] | None,
    out: Path | None,
    resume: bool,
    transport: str | None,
    trust_remote_code: bool,
) -> Path | None:
    """Run a recipe, or resume it, and return its folder."""
    from motet.core.errors import ConfigError
    from motet.experiment.commands.run_folder import load_config
    from motet.experiment.recipe.recipe_files import load_recipe

    recipe, overrides = split_settings(recipe, settings, DEFAULT_RECIPE)
    config = load_recipe(recipe, [*([f"transport.type={transport}"] if transport else []), *overrides])
    if resume:
        if out is None:
            raise ConfigError(
                "run: --resume needs the folder of the run; pass --out FOLDER, or use: motet resume FOLDER"
            )
        config = load_config(out)
    return _train(config, out, resume, trust_remote_code)


@app.command("resume", rich_help_panel=TRAINING)
@handle_errors
def resume_run(folder: RunFolder, trust_remote_code: TrustRemoteCode = False) -> None:
    """Resume an interrupted run. It ends with the same result as without the interruption."""
    from motet.core.errors import ConfigError
    from motet.experiment.commands.run_folder import is_served, load_config, resume_command

    if is_served(folder):
        raise ConfigError(f"'{folder}' is the run of a server, and its clients join again: {resume_command(folder)}")
    _train(load_config(folder), folder, resume=True, trust_remote_code=trust_remote_code)


@app.command(rich_help_panel=TRAINING)
@handle_errors
def check(
    recipe: Recipe = DEFAULT_RECIPE, settings: Settings = None, trust_remote_code: TrustRemoteCode = False
) -> None:
    """Check a recipe before training: inspect the data, train a few steps, estimate memory, traffic and time."""
    from motet.experiment.build.component_builders import resolve_defaults
    from motet.experiment.build.federation_builder import build_federation
    from motet.experiment.commands.dry_run import dry_run
    from motet.experiment.recipe.recipe_files import load_recipe
    from motet.models.loading_permissions import allow_remote_code

    recipe, overrides = split_settings(recipe, settings, DEFAULT_RECIPE)
    config = resolve_defaults(load_recipe(recipe, overrides))
    with allow_remote_code(trust_remote_code):
        federation = build_federation(config, on_inspection=print_inspection)
        echo("Training a few steps to estimate memory and time …", err=True)
        result = dry_run(config, federation)
    print_facts(result.facts)
    print_warnings(result.warnings)
    echo("All checks passed.")


@app.command("list", rich_help_panel=TRAINING)
@handle_errors
def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="algorithms, tasks, datasets, formats, models, partitions, codecs, transports, secure, privacy, robust, "
            "trackers, recipes, keys or suites.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the algorithms, datasets, models, recipe keys and so on that you can use, with short descriptions."""
    from motet.experiment.commands.listings import list_entries, list_tables

    if kind is None:
        echo("What would you like to list? For example: motet list algorithms")
    entries = list_entries(kind) if kind is not None else list_tables()
    if as_json:
        echo(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        print_columns(entries, max(map(len, entries)) + 2)


@app.command(rich_help_panel=TRAINING)
@handle_errors
def schema() -> None:
    """Print the JSON Schema of recipes, for editors: motet schema > motet.schema.json

    With this first line, an editor checks and completes a recipe: # yaml-language-server: $schema=motet.schema.json
    """
    from motet.experiment.commands.recipe_schema import recipe_schema

    echo(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))


@app.command(rich_help_panel=TRAINING)
@handle_errors
def export(
    folder: RunFolder,
    to: Annotated[Path, typer.Option(help="Output folder for the model.")],
    client: Annotated[str | None, typer.Option(help="Export the personal model of this client.")] = None,
    all_clients: Annotated[
        bool, typer.Option("--all", help="Export the personal models of all clients, one folder each.")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="For a client's state: export the model of its best round, not of the last.")
    ] = False,
    merged: Annotated[
        bool,
        typer.Option("--merged", help="Add adapters to the weights of their base model, instead of saving them alone."),
    ] = False,
    state_key: StateKeySource = None,
    push: Annotated[
        str | None,
        typer.Option(metavar="USER/NAME", help="Also upload the model to this private repository of the hub."),
    ] = None,
) -> None:
    """Export the trained model, or the clients' personal models, as Hugging Face model folders.

    RUN may also be the state of a client that has joined a served run, such as .motet/NAME.
    """
    from motet.experiment.commands.model_export import export_models, loading_code, needs_motet, push_model

    if all_clients:
        _check_all_clients(client, push)
    folders, remote_clients = export_models(
        folder, to, client, every=all_clients, best=best, merged=merged, state_key=read_state_key(state_key)
    )
    echo(f"Exported {len(folders)} models to {to}, one folder per client." if all_clients else f"Model: {to}")
    if remote_clients:
        echo(f"The personal models of {', '.join(remote_clients)} are on their machines, not on the server.")
    if motet_only := [path for path in folders if needs_motet(path)]:
        hint = loading_code("", motet_only[0])
        echo(f"{len(motet_only)} of {len(folders)} are BiLSTMs, which load with Motet, not transformers: {hint}")
    if push is not None:
        echo(f"Pushed to {push_model(to, push)}")


def _check_all_clients(client: str | None, push: str | None) -> None:
    """Raise an error if an option for one model is combined with --all."""
    from motet.core.errors import ConfigError

    if client is not None:
        raise ConfigError(
            f"export: --client {client} exports one model and --all exports every model. Use one of them."
        )
    if push is not None:
        raise ConfigError("export: --push uploads one model and --all exports every model. Use --client with --push.")


def _start_profile(is_requested: bool) -> AbstractContextManager[Profiler | None]:
    """Record the time since the start of the process, if a profile is requested."""
    if not is_requested:
        return nullcontext()
    from motet.report.profiler import Profiler, activate, process_start

    profiler = Profiler(process_start())
    profiler.add_start("start of Python and the command line", "import")
    return activate(profiler)


def _print_profile(profiler: Profiler, folder: Path) -> None:
    """Print the breakdown, and write the trace and the picture."""

    from motet.report.profile_files import (
        PICTURE_FILE,
        TRACE_FILE,
        build_profile_table,
        describe_bytecode,
        describe_rounds,
        write_profile,
    )

    write_profile(profiler, folder)
    create_console(120).print(build_profile_table(profiler))
    echo(describe_rounds(profiler))
    if advice := describe_bytecode():
        echo(advice)
    echo(f"Profile: {folder / TRACE_FILE} (open it at ui.perfetto.dev), {folder / PICTURE_FILE}")


def _train(config: RunConfig, out: Path | None, resume: bool, trust_remote_code: bool) -> Path | None:
    """Run a configuration and print its results. Return its folder, or None in a worker process."""
    from motet.experiment.commands.recipe_runner import run_recipe
    from motet.experiment.commands.run_folder import create_new_folder, resume_command
    from motet.experiment.recipe.start_folder import enter_start_folder
    from motet.models.loading_permissions import allow_remote_code

    if config.transport.type == "mpi":
        from motet.experiment.deploy.mpi_launch import run_worker_rank

        with enter_start_folder(out) if resume and out is not None else nullcontext():
            if run_worker_rank(config):  # only rank 0 prints
                return None
    folder = out or create_new_folder(config.recipe)
    try:
        with allow_remote_code(trust_remote_code):
            finished = run_recipe(config, folder, resume=resume, callback=create_run_progress())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(resume_command(folder)) from None
    print_results(finished)
    return folder


def print_results(finished: FinishedRun) -> None:
    """Draw the plots of a finished run, and print its results."""
    from motet.experiment.commands.run_figures import draw_figures
    from motet.report.json_log import is_json_log
    from motet.report.profiler import span

    with span("draw the plots", "saving"):
        draw_figures(finished)
    summary, folder = finished.summary, finished.folder
    if is_json_log():
        fields = {"rounds": summary["rounds"], "scores": summary["final"], "seconds": summary["seconds"]}
        print_line("the run is finished", run=summary["recipe"], folder=str(folder), **fields)
    else:
        _print_tables(finished)


def _print_tables(finished: FinishedRun) -> None:
    """Print the results of a run next to those of its baselines."""

    from motet.experiment.commands.model_export import loading_code
    from motet.experiment.commands.run_summary import describe_metrics
    from motet.report.console_tables import build_results_table

    summary, folder = finished.summary, finished.folder
    title = f"{summary['recipe']}: {summary['dataset']}, {summary['model']}, {summary['clients']} clients"
    create_console(120).print(build_results_table(finished.summaries, title))
    details = describe_metrics(summary, {summary["primary_metric"], *(g["primary_metric"] for g in summary["groups"])})
    if details:
        echo(f"{details}.")
    for remark in summary.get("remarks", []):
        echo(f"Note: {remark}")
    echo(f"Results: {folder}/  curves: {folder / 'curves.png'}")
    if (kept_round := summary.get("kept_round", summary["rounds"])) != summary["rounds"]:
        echo(f"Kept: the model after round {kept_round}, the best on the development set")
    if summary["network_seconds"] is not None:
        echo(f"Virtual time on the emulated network: {summary['network_seconds']:,.1f} s")
    if (folder / "model").exists():
        echo(f"Load the model: {loading_code(summary['task'], folder / 'model')}")
