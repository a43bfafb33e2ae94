"""Identities: the keys by which clients of a secure sum know each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import app, handle_errors


@app.command()
@handle_errors
def identities(
    folder: Annotated[Path, typer.Argument(help="Where <client>.pub and <client>.key are written.")],
    clients: Annotated[list[str], typer.Argument(help="Names of clients.")],
) -> None:
    """Make signing keys for secure sums: <client>.pub goes to every client's machine, <client>.key stays on its own."""
    from motet.secure.identities import Identities

    for client in clients:
        Identities(str(folder)).create(client, os.urandom)
        typer.echo(f"{folder / client}.pub for everybody, {folder / client}.key for {client} alone")
