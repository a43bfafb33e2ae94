"""The command motet dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import RESULTS, app, handle_errors

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
        bool, typer.Option("--no-token", help="Let everybody on this machine look. Only at a loopback address.")
    ] = False,
) -> None:
    """Show all runs of a folder in a browser, live: progress, curves, clients, comparisons. It changes nothing."""
    from motet.dashboard.http_server import Dashboard, DashboardOptions

    server = Dashboard(folder, DashboardOptions(bind=bind, token=token, is_open=no_token))
    typer.echo(f"Dashboard of {folder}: {server.url}\nStop it with Ctrl-C.")
    server.serve()
