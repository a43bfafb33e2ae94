"""Commands of a server: serve, allow, status."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import (
    DEFAULT_RECIPE,
    DEPLOYMENT,
    Cert,
    Key,
    OutFolder,
    Recipe,
    Resume,
    Settings,
    TrustRemoteCode,
    app,
    handle_errors,
    split_settings,
)
from motet.cli.dashboard import DEFAULT_BIND, DashboardBind, DashboardToken, WithDashboard, require_known_token
from motet.cli.log_format import LogFormat, create_run_progress, print_line, use_log_format
from motet.cli.terminal import echo

if TYPE_CHECKING:
    from motet.experiment.recipe.run_config import RunConfig

Bind = Annotated[str | None, typer.Option(help="Address to listen on, as host:port.", show_default="127.0.0.1:8890")]
Network = Annotated[str | None, typer.Option("--transport", help="grpc or mqtt.", show_default="grpc")]
Clients = Annotated[int | None, typer.Option(help="Number of clients that join with their own data.")]
AllowFile = Annotated[Path | None, typer.Option("--allow", help="File with the allowed clients (see: motet allow).")]
ClientCa = Annotated[Path | None, typer.Option(help="Accept only clients with a certificate from this CA (PEM).")]
Status = Annotated[str | None, typer.Option(help="Serve a status page at this host:port.")]
Metrics = Annotated[str | None, typer.Option(help="Serve metrics for Prometheus at this host:port, under /metrics.")]
AutoResume = Annotated[
    bool,
    typer.Option("--auto-resume", help="Resume the run in --out if there is one, else start it. For services."),
]


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def serve(
    recipe: Recipe = DEFAULT_RECIPE,
    settings: Settings = None,
    bind: Bind = None,
    transport: Network = None,
    clients: Clients = None,
    allow: AllowFile = None,
    key: Key = None,
    cert: Cert = None,
    ca: ClientCa = None,
    status: Status = None,
    metrics: Metrics = None,
    dashboard: WithDashboard = False,
    dashboard_bind: DashboardBind = DEFAULT_BIND,
    dashboard_token: DashboardToken = None,
    out: OutFolder = None,
    resume: Resume = False,
    auto_resume: AutoResume = False,
    trust_remote_code: TrustRemoteCode = False,
    log_format: LogFormat = "text",
) -> None:
    """Train a recipe with clients that join over the network."""
    use_log_format(log_format)
    from motet.experiment.commands.run_folder import create_new_folder, is_finished
    from motet.models.loading_permissions import allow_remote_code

    recipe, given = split_settings(recipe, settings, DEFAULT_RECIPE)
    flags = {"bind": bind, "clients": clients, "allow": allow, "key": key, "cert": cert, "ca": ca}
    pages = {"status": status, "metrics": metrics}
    overrides = [f"transport.{n}={v}" for n, v in {"type": transport, **flags, **pages}.items() if v is not None]
    resume = _must_resume(out, resume, auto_resume)
    if auto_resume and out is not None and is_finished(out):
        print_line(f"The run in {out} is finished. To train again, choose another --out.")
        return
    config = _load_served_config(recipe, [*overrides, *given], out if resume else None)
    with allow_remote_code(trust_remote_code):
        folder = out or create_new_folder(config.recipe)
        with _serve_dashboard(folder, dashboard_bind, dashboard_token) if dashboard else nullcontext():
            _serve(config, folder, resume)


def _must_resume(out: Path | None, resume: bool, auto_resume: bool) -> bool:
    from motet.core.errors import ConfigError
    from motet.experiment.commands.run_folder import is_started

    if (resume or auto_resume) and out is None:
        raise ConfigError("serve: --resume and --auto-resume need the folder of the run; pass --out FOLDER.")
    return resume or (auto_resume and out is not None and is_started(out))


def _load_served_config(recipe: str, overrides: list[str], started: Path | None) -> RunConfig:
    """Load a recipe that can be served. A run that was started keeps its own, except for the network."""
    from dataclasses import replace

    from motet.experiment.commands.run_folder import load_config
    from motet.experiment.commands.server_reports import describe_ignored_settings
    from motet.experiment.deploy.network_options import with_default_network
    from motet.experiment.recipe.recipe_files import load_recipe

    config = with_default_network(load_recipe(recipe, overrides))
    if started is None:
        return config
    stored = load_config(started)
    if note := describe_ignored_settings(config, stored):
        print_line(note)
    return replace(stored, transport=config.transport)


def _serve_dashboard(folder: Path, bind: str, token: str | None) -> AbstractContextManager[None]:
    """Serve the dashboard of one run in a thread of this process."""
    from motet.core.errors import MotetError
    from motet.dashboard.http_server import Dashboard, DashboardOptions
    from motet.report.json_log import is_json_log

    require_known_token(token)
    try:
        dashboard = Dashboard(folder, DashboardOptions(bind=bind, token=token), is_new=True)
    except MotetError:
        with suppress(OSError):  # it has a run that is resumed, or it does not exist yet
            folder.rmdir()
        raise
    print_line(f"dashboard: {dashboard.address if is_json_log() else dashboard.url}")
    return dashboard.serve_in_background()


def _serve(config: RunConfig, folder: Path, resume: bool) -> None:
    from motet.cli.runs import print_results
    from motet.experiment.commands.run_folder import resume_command
    from motet.experiment.commands.serve_run import serve_run

    try:
        finished = serve_run(config, folder, resume=resume, log=print_line, callback=create_run_progress())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(resume_command(folder)) from None
    print_results(finished)


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def allow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with the allowed clients. Created if missing.")],
    names: Annotated[list[str], typer.Argument(metavar="CLIENT", help="Names of the clients to allow.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Replace the tokens of these clients.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Remove these clients. A running server drops them.")
    ] = False,
) -> None:
    """Create tokens for clients. Each token is printed once; the file stores only hashes."""
    from motet.core.errors import ConfigError
    from motet.experiment.deploy.allow_list import add_clients, revoke_clients

    if rotate and revoke:
        raise ConfigError("allow: --rotate creates new tokens and --revoke removes clients; use one of them.")
    if revoke:
        revoke_clients(file, names)
        return
    for name, token in add_clients(file, names, replace=rotate).items():
        echo(f"{name}: {token}")


@app.command("status", rich_help_panel=DEPLOYMENT)
@handle_errors
def show_status(
    source: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="Folder of a run, or the address of the status page of a server.")
    ],
) -> None:
    """Show the status of a run. The token of a status page is read from MOTET_STATUS_TOKEN."""
    from motet.experiment.commands.run_state import describe_state
    from motet.report.run_status import format_status

    echo(format_status(describe_state(source, os.environ.get("MOTET_STATUS_TOKEN", ""))))
