"""The command motet dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import RESULTS, app, handle_errors
from motet.cli.log_format import LogFormat, print_line, use_log_format

DEFAULT_BIND = "127.0.0.1:8895"
TOKEN_VARIABLE = "MOTET_DASHBOARD_TOKEN"

DashboardBind = Annotated[str, typer.Option(help="Address of the dashboard, as host:port.")]
DashboardToken = Annotated[
    str | None,
    typer.Option(envvar=TOKEN_VARIABLE, help="Token of the dashboard.", show_default="a random one", show_envvar=True),
]
WithDashboard = Annotated[
    bool, typer.Option("--dashboard", help="Also serve the dashboard of this run (see: motet dashboard).")
]


@app.command(rich_help_panel=RESULTS)
@handle_errors
def dashboard(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with runs and benchmarks, or of a single run.")
    ] = Path("runs"),
    bind: DashboardBind = DEFAULT_BIND,
    token: DashboardToken = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let anyone on this machine see it. Only at a loopback address.")
    ] = False,
    log_format: LogFormat = "text",
) -> None:
    """Show all runs of a folder in a browser, live: progress, curves, clients, comparisons. It changes nothing."""
    from motet.dashboard.http_server import Dashboard, DashboardOptions
    from motet.report.json_log import is_json_log

    use_log_format(log_format)
    if not no_token:
        require_known_token(token)
    server = Dashboard(folder, DashboardOptions(bind=bind, token=token, is_open=no_token))
    print_line(f"Dashboard of {folder}: {server.address if is_json_log() else server.url}")
    print_line("Stop it with Ctrl-C.")
    server.serve()


def require_known_token(token: str | None) -> None:
    """Raise an error if the token would be random and is not printed, because logs must have no secrets."""
    from motet.core.errors import ConfigError
    from motet.report.json_log import is_json_log

    if token is None and is_json_log():
        raise ConfigError(f"JSON logs do not contain the token of the dashboard; choose one and set {TOKEN_VARIABLE}.")
