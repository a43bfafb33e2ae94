"""Listen for the clients of a run over gRPC, MQTT or Flower."""

from __future__ import annotations

import math
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.acceptance import build_acceptance, model_fingerprint, remove_server_files
from motet.experiment.deploy.allow_list import AllowList, load_allowed
from motet.experiment.deploy.certificates import read_host_names
from motet.experiment.deploy.deployment_record import DeploymentRecord
from motet.experiment.deploy.network_options import FLOWER_HINT, NetworkOptions
from motet.experiment.deploy.remote_federation import RemoteFederation, build_server_federation
from motet.experiment.deploy.run_limits import limit_replies
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.addresses import check_bind, is_loopback, require_tls, split_address
from motet.transport.admission import Admission, JoinAccepted, LoadTokens
from motet.transport.connections import Connections

MAX_LISTED_CLIENTS = 10
Listen = Callable[[Connections], str]  # starts to listen and returns the address


@dataclass
class ClientListener:
    """The connections of a run, and what the server knows of its clients."""

    connections: Connections
    address: str
    server_key: str  # MQTT: the public key that clients need
    record: DeploymentRecord
    local: Federation  # on this machine
    expected_clients: int
    network: str  # transport.type
    options: NetworkOptions

    @property
    def clients_bring_data(self) -> bool:
        return self.options.clients_bring_data

    def federation(self) -> Federation | RemoteFederation:
        """Return the federation of all clients that have joined and may still take part."""
        if not self.clients_bring_data:
            return self.local
        is_revoked = self.connections.admission.is_revoked
        clients = tuple(client for client in self.record.clients if not is_revoked(client))
        return RemoteFederation(local=self.local, clients=clients, groups=self.record.groups)

    def describe_join_command(self) -> str:
        """Return the command with which a client joins."""
        if self.network == "flower":
            return "motet join --transport flower --server SOCKET --name NAME --data FILE"
        options = self.options
        key = f" --transport mqtt --server-key {self.server_key}" if self.server_key else ""
        user = "" if options.broker is None or options.user is None else " --user USER"
        uses_tls = (options.cert if options.broker is None else options.ca) is not None
        authority = " --ca CERTIFICATE" if uses_tls else ""
        server = public_address(self.address, _find_certificate_names(options))
        return f"motet join --server {server}{key}{user}{authority} --name NAME --data FILE"

    def wait_for_quorum(self, quorum: float, on_waiting: Callable[[str], None]) -> None:
        """Wait until enough clients are connected for a round. Call `on_waiting` with a text that says who is missing.

        The first time, clients that are known only by their number must all have joined.
        """
        is_first_time = self.clients_bring_data and len(self.record.clients) < self.expected_clients
        needed = self.expected_clients if is_first_time else math.ceil(quorum * self.expected_clients)

        def report(connected: Sequence[ClientId]) -> None:
            names = ", ".join(connected[:MAX_LISTED_CLIENTS])
            absent = [client for client in self.connections.admission.expected if client not in connected]
            missing = f"; missing: {', '.join(absent[:MAX_LISTED_CLIENTS])}" if absent else ""
            on_waiting(
                f"waiting for clients: {len(connected)} of {needed} are connected{': ' if names else ''}{names}{missing}"
            )

        self.connections.wait_for_clients(needed, report)


def public_address(address: str, certificate_names: Sequence[str] = ()) -> str:
    """Return the address that clients use: under TLS one that is in the certificate, if it has any.

    A server that listens everywhere is reached by the name of its machine.
    """
    host, port = split_address(address)
    if host in ("0.0.0.0", "::"):
        host = socket.getfqdn()
    names = [name for name in certificate_names if "*" not in name]
    if names and host not in names:
        is_local = is_loopback(address)
        host = next((name for name in names if is_loopback(f"{name}:{port}") == is_local), names[0])
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_listener(
    config: RunConfig,
    folder: Path,
    options: NetworkOptions,
    local: Federation | None = None,
    tokens: Mapping[ClientId, str] | None = None,
    listen: Listen | None = None,
) -> ClientListener:
    """Listen for clients as the recipe says.

    `local` is the federation on this machine, if it is built already. `tokens` are the hashes of the tokens of simulated
    clients, if they have any. `listen` is for a network that exists already and decides who can reach the server.
    """
    local = local or build_server_federation(config, options)
    record = DeploymentRecord.open(folder)
    admission = _build_admission(config, options, local, record, _find_tokens(options, tokens))
    expected_clients = options.clients or len(admission.expected)
    limits = limit_replies(config, local, options.limit)
    connections = Connections(admission, config.wait_policy.reconnect_timeout, limits)
    try:
        if listen is None:
            address, server_key = _listen(config.transport.type, connections, options, folder)
        else:
            address, server_key = listen(connections), ""
    except BaseException:
        connections.close()
        raise
    return ClientListener(
        connections=connections,
        address=address,
        server_key=server_key,
        record=record,
        local=local,
        expected_clients=expected_clients,
        network=config.transport.type,
        options=options,
    )


def _find_certificate_names(options: NetworkOptions) -> Sequence[str]:
    """Return the names in the server's certificate. Clients of a broker elsewhere see the certificate of the broker."""
    return [] if options.cert is None or options.broker is not None else read_host_names(Path(options.cert))


def _find_tokens(options: NetworkOptions, tokens: Mapping[ClientId, str] | None) -> LoadTokens | None:
    """Return a function that returns the tokens of the allowed clients; None if nobody has one yet."""
    if options.allow is not None:
        load_allowed(options.allow)  # an error in the file is reported before the run starts
        return AllowList(Path(options.allow)).refresh
    return None if tokens is None else lambda: tokens


def _build_admission(
    config: RunConfig,
    options: NetworkOptions,
    local: Federation,
    record: DeploymentRecord,
    load_tokens: LoadTokens | None,
) -> Admission:
    fingerprints: dict[str, str] = {}
    if options.clients_bring_data:
        names = record.clients if load_tokens is None else list(load_tokens())
        record.add_clients(*names)
        fingerprints = {group.name: model_fingerprint(group.model) for group in local.groups}
    else:
        names = list(local.clients)
        record.add_clients()
    # A client with its own data has the model of its group. A simulated client of the recipe has the server's too.
    is_one_group = len(fingerprints) == 1
    fingerprint = fingerprints.popitem()[1] if is_one_group else model_fingerprint(local.model)
    return Admission(
        acceptance=_build_acceptance(config, options, local, record.run),
        fingerprint=fingerprint,
        expected=tuple(names),
        capacity=options.clients or 0,
        load_tokens=load_tokens,
        bound_tokens=dict(record.token_hashes) if load_tokens is None else {},
        on_new_client=record.add_client,
        group_fingerprints=fingerprints,
        client_groups=dict(record.groups),
    )


def _build_acceptance(config: RunConfig, options: NetworkOptions, local: Federation, run: str) -> JoinAccepted:
    """Return what clients get, without files of the server. Simulated clients have the recipe; they get its digest."""
    session = secrets.token_hex(8)
    if options.clients_bring_data:
        return build_acceptance(remove_server_files(config), local, run, session)
    return replace(build_acceptance(config, local, run, session), config={})


def check_network(network: str, options: NetworkOptions) -> None:
    """Reject a network that clients cannot join over, and a server on which anybody could join as any client."""
    if network not in ("grpc", "mqtt"):
        expected = f"transport.type is {network}; expected grpc or mqtt, over which clients can join."
        raise ConfigError(FLOWER_HINT if network == "flower" else expected)
    check_bind(options.bind)
    address = options.bind if options.broker is None or network == "grpc" else options.broker
    has_certificates = network == "grpc" and options.ca is not None
    if not (is_loopback(address) or options.allow or has_certificates or options.allow_anyone):
        raise ConfigError(
            f"others can reach {address}, and nothing says who may join; pass a list of clients (motet allow, --allow) or, "
            "over gRPC, --ca for certificates of clients. transport.allow_anyone=true lets anyone join."
        )
    if network == "grpc" and not is_loopback(options.bind) and options.tls_files() is None:
        raise ConfigError(
            f"transport.bind is {options.bind}, which others can reach; pass TLS files (--key, --cert), "
            "or bind to 127.0.0.1."
        )
    if network == "mqtt" and options.broker is not None:
        require_tls(options.broker, options.ca is not None, "broker")


def _listen(network: str, connections: Connections, options: NetworkOptions, folder: Path) -> tuple[str, str]:
    """Start to listen. Return the address at which clients reach the server, and its public key or ""."""
    check_network(network, options)
    if network == "mqtt":
        return _listen_at_broker(connections, options, folder)
    from motet.transport.grpc import serve_grpc

    return serve_grpc(connections, options.bind, options.tls_files()), ""


def _listen_at_broker(connections: Connections, options: NetworkOptions, folder: Path) -> tuple[str, str]:
    from motet.transport.mqtt import serve_mqtt
    from motet.transport.mqtt_encryption import ServerKey

    key = ServerKey.load_or_create(folder / "mqtt_key")
    if options.broker is not None:
        return serve_mqtt(connections, options.broker_config(options.broker), key), key.text
    from motet.transport.local_broker import LocalBroker

    broker = LocalBroker(options.broker_config(options.bind), key, options.cert, options.key)
    serve_mqtt(connections, broker.server_config, key)
    stop_listening = connections.stop_listening

    def stop() -> None:
        stop_listening()
        broker.stop()

    connections.stop_listening = stop
    return broker.address, key.text
