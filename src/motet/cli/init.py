"""The commands motet init server, invitation and silo: set up a deployment, step by step."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DEPLOYMENT, app, handle_errors, split_settings
from motet.cli.terminal import echo

DEFAULT_PORT = 8443
SERVER_FOLDER, SILO_FOLDER = Path("server"), Path("silo")

init_app = typer.Typer(no_args_is_help=True, help="Set up a server or a silo, step by step.")
app.add_typer(init_app, name="init", rich_help_panel=DEPLOYMENT)

NewFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The new folder. Nothing is overwritten.")]


@init_app.command()
@handle_errors
def server(
    folder: NewFolder = SERVER_FOLDER,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings of the recipe, e.g. model.name=tiny rounds=5."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address at which silos reach the server. Repeat it for more names."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server.")] = DEFAULT_PORT,
    silo: Annotated[list[str] | None, typer.Option(help="Name of a silo. Repeat it, three times at least.")] = None,
    data: Annotated[Path | None, typer.Option(help="A few public texts with all labels: the global test set.")] = None,
) -> None:
    """Write the recipe, certificates, tokens and invitations of a server. In a terminal, ask for missing values."""
    from motet.experiment.commands.server_setup import ServerSetup, create_server
    from motet.experiment.recipe.recipe_files import parse_overrides

    folder, overrides = split_settings(folder, settings, SERVER_FOLDER)
    setup = ServerSetup(
        folder=folder,
        hosts=host or _ask("Name at which silos reach this server, such as fl.example.org", "--host").split(),
        port=port,
        silos=silo or _ask("Names of the silos, at least three, with spaces between them", "--silo").split(),
        data=data or Path(_ask("File with a few public texts and all labels", "--data")).expanduser(),
        settings=parse_overrides(overrides),
    )
    create_server(setup, echo)
    _print_invitations(folder, setup.silos)
    _print_commands("Start the server:", [f"cd {shlex.quote(str(folder))}", setup.serve_command])


@init_app.command()
@handle_errors
def invitation(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that motet init server wrote.")
    ] = SERVER_FOLDER,
    silo: Annotated[list[str] | None, typer.Option(help="Name of the new silo. Repeat it for several.")] = None,
) -> None:
    """Invite more silos: write their tokens and invitations. They take part when the server is started again."""
    from motet.experiment.commands.silo_invitations import invite_silos

    names = silo or _ask("Names of the new silos, with spaces between them", "--silo").split()
    invite_silos(folder, names)
    _print_invitations(folder, names)
    echo(
        f"\nEach silo of the run needs the .pub file of {' and '.join(names)} in its keys. Then stop the server, and start "
        "it again: the run goes on with all of them."
    )


@init_app.command()
@handle_errors
def silo(
    folder: NewFolder = SILO_FOLDER,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA.KEY=VALUE", help="Settings for --data, e.g. data.text=body."),
    ] = None,
    invitation: Annotated[Path | None, typer.Option(help="The file that the operator of the server sent you.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your texts: any file or folder that Motet reads.")] = None,
    max_epsilon: Annotated[
        float | None,
        typer.Option(min=0.0, help="Require noise in every run, and limit the privacy loss of all runs together."),
    ] = None,
) -> None:
    """Write the certificate, token, identity and policy of a silo. In a terminal, ask for missing values."""
    from motet.experiment.commands.silo_setup import SiloSetup, create_silo
    from motet.experiment.deploy.invitation import Invitation

    folder, overrides = split_settings(folder, settings, SILO_FOLDER)
    invitation = invitation or Path(_ask("File with the invitation from the server", "--invitation")).expanduser()
    setup = SiloSetup(
        folder=folder,
        invitation=Invitation.read(invitation),
        data=data or Path(_ask("File or folder with your texts", "--data")).expanduser(),
        settings=overrides,
        max_epsilon=max_epsilon,
    )
    create_silo(setup, echo)
    name, others = setup.invitation.name, setup.invitation.others
    files = " and ".join(f"{other}.pub" for other in others)
    echo(
        f"\nSend {folder / 'keys' / name}.pub to {' and '.join(others)}, and put {files} into {folder / 'keys'}. Compare the "
        "files with them, by telephone for example: a server that exchanged them could read your updates."
    )
    _print_commands("Then join:", [f"cd {shlex.quote(str(folder))}", setup.join_command])


def _print_invitations(folder: Path, silos: Sequence[str]) -> None:
    echo("\nSend one file to each silo, over a channel that nobody else can read:")
    for name in silos:
        echo(f"  {folder / 'silos' / name}.yaml to {name}, who runs: motet init silo {name} --invitation {name}.yaml …")


def _ask(question: str, option: str) -> str:
    """Ask for a value on a terminal; raise an error if there is nobody to answer."""
    from motet.core.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(
            f"init: {option} is missing; pass it, or run this command in a terminal, where it asks for it."
        )
    return str(typer.prompt(question))


def _print_commands(title: str, commands: list[str]) -> None:
    echo(f"\n{title}")
    for command in commands:
        echo(f"  {command}")
