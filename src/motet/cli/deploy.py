"""Commands for deployments: serve, join, allow, status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import DEPLOYMENT, Device, OutFolder, Recipe, Resume, Settings, app, handle_errors

if TYPE_CHECKING:
    from motet.experiment.deploy.network_options import NetworkOptions

Key = Annotated[Path | None, typer.Option(help="Private key of this side (PEM).")]
Cert = Annotated[Path | None, typer.Option(help="Certificate of this side (PEM).")]
Transport = Annotated[str, typer.Option(help="grpc or mqtt.")]


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def serve(
    recipe: Recipe = "quickstart",
    settings: Settings = None,
    bind: Annotated[str, typer.Option(help="Address to listen on, as host:port.")] = "127.0.0.1:8890",
    transport: Transport = "grpc",
    clients: Annotated[int | None, typer.Option(help="Number of clients that join with their own data.")] = None,
    allow: Annotated[Path | None, typer.Option(help="File with the allowed clients (see: motet allow).")] = None,
    key: Key = None,
    cert: Cert = None,
    ca: Annotated[Path | None, typer.Option(help="Accept only clients with a certificate from this CA (PEM).")] = None,
    status: Annotated[str | None, typer.Option(help="Serve a status page at this host:port.")] = None,
    out: OutFolder = None,
    resume: Resume = False,
) -> None:
    """Train a recipe with clients that join over the network."""
    from dataclasses import replace

    from rich.console import Console

    from motet.cli.runs import print_results
    from motet.core.errors import ConfigError
    from motet.experiment.commands.run_folder import create_new_folder, load_config
    from motet.experiment.commands.serve_run import serve_run
    from motet.experiment.recipe.recipe_files import load_recipe
    from motet.report.progress import create_progress

    flags = {"bind": bind, "clients": clients, "allow": allow, "key": key, "cert": cert, "ca": ca, "status": status}
    overrides = [f"transport.type={transport}", *(f"transport.{n}={v}" for n, v in flags.items() if v is not None)]
    config = load_recipe(recipe, [*overrides, *(settings or [])])
    if resume and out is None:
        raise ConfigError("serve: --resume needs the folder of the run; give --out FOLDER.")
    if resume and out is not None:
        config = replace(load_config(out), transport=config.transport)
    folder = out or create_new_folder(config.recipe)
    try:
        finished = serve_run(config, folder, resume=resume, log=typer.echo, callback=create_progress(Console()))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the same command with --resume --out {folder}") from None
    print_results(finished)


ServerAddress = Annotated[str, typer.Option(help="Address of the server, as host:port.")]
Names = Annotated[
    list[str] | None, typer.Option(help="Name of this client. With --recipe, repeat it to simulate several clients.")
]
DataPath = Annotated[Path | None, typer.Option(help="Data of this client: any file or folder that Motet reads.")]
DataSettings = Annotated[
    list[str] | None, typer.Argument(metavar="DATA.KEY=VALUE", help="Settings for --data, e.g. data.text=body.")
]
SimulatedRecipe = Annotated[str | None, typer.Option(help="Instead of --data: simulate clients of this recipe.")]
GroupName = Annotated[str, typer.Option(help="Group of this client, if the recipe has groups.")]
Token = Annotated[str, typer.Option(help="Environment variable with the token, or @FILE.")]
ServerCa = Annotated[Path | None, typer.Option(help="CA certificate of the server (PEM); enables TLS.")]
Channel = Annotated[str | None, typer.Option(help="MQTT: topic of the run.", show_default="motet")]
MqttUser = Annotated[
    str | None, typer.Option(help="MQTT: user name at the broker. The password is read from MOTET_MQTT_PASSWORD.")
]
StateDir = Annotated[Path, typer.Option(help="Folder for the client state between rounds.")]
ConnectTimeout = Annotated[float, typer.Option(help="Seconds to keep trying to reach the server.")]
SecureOnly = Annotated[bool, typer.Option("--secure-only", help="Reply only inside secure aggregation.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors.")]


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def join(
    server: ServerAddress,
    name: Names = None,
    data: DataPath = None,
    settings: DataSettings = None,
    recipe: SimulatedRecipe = None,
    group: GroupName = "",
    transport: Transport = "grpc",
    token: Token = "MOTET_TOKEN",
    key: Key = None,
    cert: Cert = None,
    ca: ServerCa = None,
    channel: Channel = None,
    user: MqttUser = None,
    state_dir: StateDir = Path(".motet"),
    connect_timeout: ConnectTimeout = 600.0,
    secure_only: SecureOnly = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Join a run as a client. The data stays on this machine."""
    from motet.experiment.deploy.join_run import join_run, make_connector, parse_names
    from motet.experiment.deploy.remote_client import JoinOptions, parse_client_data
    from motet.experiment.recipe.recipe_files import load_recipe

    names = parse_names(name or [])
    client = JoinOptions(
        names=names,
        data=parse_client_data(data, settings or []) if data else None,
        config=None if recipe is None else load_recipe(recipe, settings or []),
        state_folder=state_dir / names[0],
        device=device,
        sums_only=secure_only,
        group=group,
    )
    options = _network_options(key=key, cert=cert, ca=ca, user=user, channel=channel)
    log = _ignore if quiet else typer.echo
    log(join_run(client, make_connector(transport, server, options), _read_token(token), connect_timeout, log))


@app.command(rich_help_panel=DEPLOYMENT)
@handle_errors
def allow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with the allowed clients. Created if missing.")],
    names: Annotated[list[str], typer.Argument(metavar="CLIENT", help="Names of the clients to allow.")],
) -> None:
    """Create tokens for clients. Each token is printed once; the file stores only hashes."""
    import yaml

    from motet.experiment.deploy.deployment_record import load_allowed
    from motet.transport.admission import generate_token, hash_token

    allowed = load_allowed(str(file)) if file.exists() else {}
    for name in names:
        token = generate_token()
        allowed[name] = hash_token(token)
        typer.echo(f"{name}: {token}")
    file.write_text(yaml.safe_dump(allowed), "utf-8")


@app.command("status", rich_help_panel=DEPLOYMENT)
@handle_errors
def show_status(
    source: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="Folder of a served run, or the address of its status page.")
    ],
) -> None:
    """Show the status of a served run. The token of a status page is read from MOTET_STATUS_TOKEN."""
    from motet.report.run_status import format_status, read_status

    typer.echo(format_status(read_status(source, os.environ.get("MOTET_STATUS_TOKEN", ""))))


def _network_options(**flags: Path | str | None) -> NetworkOptions:
    from motet.experiment.deploy.network_options import NetworkOptions
    from motet.experiment.recipe.config_parsing import instantiate

    return instantiate(NetworkOptions, {name: str(v) for name, v in flags.items() if v is not None}, "join")


def _read_token(source: str) -> str:
    if source.startswith("@"):
        return Path(source[1:]).read_text("utf-8").strip()
    return os.environ.get(source, "")


def _ignore(text: str) -> None: ...
