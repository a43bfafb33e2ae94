"""The commands motet identities and motet certificate: keys of the clients of a secure sum, and of a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DEPLOYMENT, app, handle_errors
from motet.cli.terminal import echo


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
        raise ConfigError("identities: --rotate creates new keys and --revoke withdraws them; use one of them.")
    for client in clients:
        if revoke:
            Identities(str(folder)).revoke(client)
            echo(f"{client}: revoked here; copy {folder / client}.revoked to every client")
            continue
        Identities(str(folder)).create(client, os.urandom, replace=rotate)
        echo(f"{client}: copy {folder / client}.pub to every client, and {folder / client}.key only to {client}")


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def certificate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for ca.pem, ca.key, server.pem, server.key.")
    ],
    hosts: Annotated[list[str], typer.Argument(metavar="HOST", help="Names or addresses at which clients reach it.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Replace the certificate. The authority stays.")] = False,
) -> None:
    """Create a certificate for a server, and a certificate authority that signs it."""
    from motet.experiment.deploy.certificates import create_certificates

    expires = create_certificates(folder, hosts, replace=rotate)
    echo(f"{folder / 'server.pem'}: for {', '.join(hosts)}, valid until {expires:%Y-%m-%d}. Keep server.key secret.")
    echo(f"{folder / 'ca.pem'}: give it to every client. Keep ca.key in a safe place; only new certificates need it.")
