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
) -> None:
    """Create signing keys for secure aggregation: <client>.pub for every client, <client>.key only for its owner."""
    from motet.secure.identities import Identities

    for client in clients:
        Identities(str(folder)).create(client, os.urandom)
        typer.echo(f"{client}: copy {folder / client}.pub to every client, and {folder / client}.key only to {client}")
