"""`motet join`: take part in a run that a server runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.build.component_builders import resolve_defaults
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions
from motet.report.log_lines import limit_repeats
from motet.transport.addresses import require_tls
from motet.transport.admission import PROTOCOL_VERSION, JoinRequest
from motet.transport.client_connection import ClientConnection, ServerLink
from motet.transport.encrypted_files import StateFiles
from motet.transport.folder_lock import find_lock_owner, lock_folder

ConnectServer = Callable[[], ServerLink]


class JoinResult(NamedTuple):
    """How a run ended for a client, and the folder with its state; None if the server has not accepted it."""

    reason: str
    run_folder: Path | None


def join_run(
    options: JoinOptions, connect: ConnectServer, token: str, give_up_after: float, log: Callable[[str], None]
) -> JoinResult:
    """Answer the server's requests until the run is over."""
    log = limit_repeats(log)  # a server that is down for hours
    if options.data is None and options.config is None:
        raise ConfigError("join: pass --data with your own texts, or --recipe to simulate clients of a recipe.")
    if options.data is None and options.policy != JoinPolicy():
        raise ConfigError("join: --policy and --allow-… protect your own texts; pass --data, or leave them out.")
    if options.data is not None and len(options.names) != 1:
        raise ConfigError(f"join: --name was given {len(options.names)} times; with --data, pass it once.")
    options.policy.check_state_key(options.state_key is not None)
    request = JoinRequest(
        protocol=PROTOCOL_VERSION,
        clients=options.names,
        digest=resolve_defaults(options.config).digest if options.config is not None else "",
        token=token,
        group=options.group,
    )
    with lock_folder(options.state_folder) as is_claimed:
        if not is_claimed:
            raise ConfigError(
                f"'{options.state_folder}' is in use by {find_lock_owner(options.state_folder) or 'another process'}, so "
                f"{options.names[0]} has joined already; stop that process, or choose another --state-dir."
            )
        StateFiles(options.state_key).check_folder(options.state_folder)
        builder = ClientBuilder(options, log)
        try:
            reason = ClientConnection(connect, request, builder, give_up_after, log).run()
            return JoinResult(reason=reason, run_folder=builder.run_folder)
        finally:
            builder.close()


def make_connector(network: str, server: str, options: NetworkOptions, client: ClientId) -> ConnectServer:
    """Return a function that connects a client to the server."""
    if network == "grpc":
        from motet.transport.grpc import GrpcServerLink

        tls_files = options.tls_files()
        require_tls(server, tls_files is not None and tls_files.authority is not None, "server")
        return lambda: GrpcServerLink(server, tls_files)
    if network == "mqtt":
        from motet.transport.mqtt import MqttServerLink
        from motet.transport.mqtt_encryption import parse_server_key

        broker, server_key = options.broker_config(server), parse_server_key(options.server_key)
        require_tls(server, broker.authority is not None, "broker")
        return lambda: MqttServerLink(broker, server_key, client)
    if network == "flower":
        from motet.transport.flower_socket import FlowerSocket

        return FlowerSocket(Path(server)).connect
    raise ConfigError(f"--transport is '{network}'; expected grpc, mqtt or flower.")


def parse_names(names: Sequence[ClientId]) -> tuple[ClientId, ...]:
    """Return the client names of the command line, sorted and without duplicates."""
    if not names:
        raise ConfigError("join: --name is missing; give this client's name, as the server knows it: --name NAME")
    return tuple(sorted(set(names)))
