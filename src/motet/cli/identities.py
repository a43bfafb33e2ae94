"""The command motet identities: keys with which clients of a secure sum authenticate each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DEPLOYMENT, app, handle_errors


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def identities(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for <client>.pub and <client>.key.")],
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT", help="Names of the clients.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Replace the keys of these clients.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Withdraw the keys of these clients on this machine.")
    ] = False,
) -> None:
    """Create signing keys for secure aggregation: <client>.pub for every client, <client>.key only for its owner."""
    from motet.core.errors import ConfigError
    from motet.secure.identities import Identities

    if rotate and revoke:
        raise ConfigError("identities: --rotate creates new keys and --revoke withdraws them; give one of them.")
    for client in clients:
        if revoke:
            Identities(str(folder)).revoke(client)
            typer.echo(f"{client}: revoked here; copy {folder / client}.revoked to every client")
            continue
        Identities(str(folder)).create(client, os.urandom, replace=rotate)
        typer.echo(f"{client}: copy {folder / client}.pub to every client, and {folder / client}.key only to {client}")
