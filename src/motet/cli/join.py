"""The command motet join: take part in a run as a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import (
    DEPLOYMENT,
    Cert,
    Device,
    Key,
    Precision,
    StateKeySource,
    Transport,
    TrustRemoteCode,
    app,
    handle_errors,
    read_secret,
    read_state_key,
)
from motet.cli.log_format import LogFormat, print_line, use_log_format

if TYPE_CHECKING:
    from motet.experiment.deploy.join_policy import JoinPolicy
    from motet.experiment.deploy.join_run import ConnectServer
    from motet.experiment.deploy.remote_client import JoinOptions
    from motet.transport.encrypted_files import EncryptionKey

ServerAddress = Annotated[
    str, typer.Option(help="Address of the server, as host:port. Flower: path of a socket for the SuperNode.")
]
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
ServerKey = Annotated[str | None, typer.Option(help="MQTT: public key of the server, which it prints when it starts.")]
MqttUser = Annotated[
    str | None, typer.Option(help="MQTT: user name at the broker. The password is read from MOTET_MQTT_PASSWORD.")
]
StateDir = Annotated[Path, typer.Option(help="Folder for the client state between rounds.")]
ConnectTimeout = Annotated[float, typer.Option(help="Seconds to keep trying to reach the server.")]
SecureOnly = Annotated[
    bool, typer.Option("--secure-only", help="Reply only inside secure aggregation. The default with --data.")
]
SaveFolder = Annotated[
    Path | None,
    typer.Option(
        "--save", help="At the end, save this client's model in this folder: last and, after its best round, best."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors.")]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="What a server may ask of this client (see: motet policy init).")
]
IdentityFolder = Annotated[
    Path | None, typer.Option("--identities", help="Folder with keys, to verify other clients (see: motet identities).")
]
AllowPlain = Annotated[
    bool, typer.Option("--allow-plain-updates", help="Let the server read the updates of this client.")
]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified-peers", help="Take part in secure sums without --identities.")
]
AllowUtility = Annotated[
    bool, typer.Option("--allow-utility-reports", help="Send a number about the losses of each training.")
]
AllowModel = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-model", help="Load this model from this machine if the server asks for it. Repeat it for several."
    ),
]


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
    server_key: ServerKey = None,
    user: MqttUser = None,
    state_dir: StateDir = Path(".motet"),
    state_key: StateKeySource = None,
    connect_timeout: ConnectTimeout = 600.0,
    secure_only: SecureOnly = False,
    policy: PolicyFile = None,
    identities: IdentityFolder = None,
    allow_plain_updates: AllowPlain = False,
    allow_unverified_peers: AllowUnverified = False,
    allow_utility_reports: AllowUtility = False,
    allow_model: AllowModel = None,
    device: Device = "auto",
    precision: Precision = "auto",
    save: SaveFolder = None,
    quiet: Quiet = False,
    trust_remote_code: TrustRemoteCode = False,
    log_format: LogFormat = "text",
) -> None:
    """Join a run as a client. The data stays on this machine."""
    use_log_format(log_format)
    limits = _choose_policy(policy, allow_plain_updates, allow_unverified_peers, allow_model, allow_utility_reports)
    client = _parse_client(name, data, settings, recipe, state_dir, state_key, group, device, precision)
    client = replace(client, sums_only=secure_only, policy=limits, identities=identities, server=server)
    flags = {"key": key, "cert": cert, "ca": ca, "user": user, "channel": channel, "server_key": server_key}
    connect = _make_connector(transport, server, client.names[0], flags)
    _take_part(client, connect, token, connect_timeout, quiet=quiet, save=save, trust_remote_code=trust_remote_code)


def _choose_policy(
    file: Path | None, plain_updates: bool, unverified_peers: bool, models: list[str] | None, utility_reports: bool
) -> JoinPolicy:
    from motet.experiment.deploy.join_policy import choose_policy

    return choose_policy(
        file,
        allow_plain_updates=plain_updates,
        allow_unverified_peers=unverified_peers,
        allow_models=models or [],
        allow_utility_reports=utility_reports,
    )


def _parse_client(
    name: list[str] | None,
    data: Path | None,
    settings: list[str] | None,
    recipe: str | None,
    state_dir: Path,
    state_key: str | None,
    group: str,
    device: str,
    precision: str,
) -> JoinOptions:
    from motet.experiment.deploy.join_run import parse_names
    from motet.experiment.deploy.remote_client import JoinOptions, parse_client_data
    from motet.experiment.recipe.config_parsing import convert_value
    from motet.experiment.recipe.recipe_files import load_recipe
    from motet.experiment.recipe.run_config import Precision as PrecisionName

    names = parse_names(name or [])
    return JoinOptions(
        names=names,
        data=parse_client_data(data, settings or []) if data else None,
        config=None if recipe is None else load_recipe(recipe, settings or []),
        state_folder=state_dir / names[0],
        group=group,
        state_key=read_state_key(state_key),
        device=device,
        precision=convert_value(precision, PrecisionName, "--precision"),
    )


def _make_connector(transport: str, server: str, client: str, flags: Mapping[str, Path | str | None]) -> ConnectServer:
    """Return a function that connects a client to the server. The flags are network options, such as the files for TLS."""
    from motet.experiment.deploy.join_run import make_connector
    from motet.experiment.deploy.network_options import NetworkOptions
    from motet.experiment.recipe.config_parsing import instantiate

    options = {name: str(value) for name, value in flags.items() if value is not None}
    return make_connector(transport, server, instantiate(NetworkOptions, options, "join"), client)


def _take_part(
    client: JoinOptions,
    connect: ConnectServer,
    token_source: str,
    connect_timeout: float,
    *,
    quiet: bool,
    save: Path | None,
    trust_remote_code: bool,
) -> None:
    """Answer the server's requests until the run is over, and save the client's models."""
    from motet.experiment.commands.run_folder import require_empty
    from motet.experiment.deploy.join_run import join_run
    from motet.models.loading_permissions import allow_remote_code

    if save is not None:
        require_empty(save)
    log = _ignore if quiet else partial(print_line, client=client.names[0])
    with allow_remote_code(trust_remote_code):
        result = join_run(client, connect, _find_token(token_source, client), connect_timeout, log)
    log(result.reason)
    if save is not None:
        _save_models(result.run_folder, save, client.state_key)


def _save_models(run_folder: Path | None, to: Path, key: EncryptionKey | None) -> None:
    """Save the last and the best model of a client that has taken part in a run."""
    from motet.core.errors import RunError
    from motet.experiment.commands.model_export import export_joined_model
    from motet.experiment.deploy.client_models import has_client_models

    if run_folder is None or not has_client_models(run_folder):
        raise RunError(
            "the server has not sent its last model to this client for evaluation, so there is no model to save; "
            "ask the operator of the server for the common model, which motet export writes there."
        )
    for name in ("last", "best"):
        print_line(export_joined_model(run_folder, to / name, best=name == "best", state_key=key))


def _find_token(source: str, client: JoinOptions) -> str:
    """Return the token from a file or an environment variable.

    Without one, derive it from the state key, or else from a secret of the state folder.
    """
    from motet.experiment.deploy.join_secret import derive_join_token

    secret = None if client.state_key is None else client.state_key.derive("join")
    return read_secret(source) or derive_join_token(client.state_folder.parent, client.server, secret)


def _ignore(text: str) -> None: ...
