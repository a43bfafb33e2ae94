"""A server's side of a deployment: a run whose clients are elsewhere, and which outlives the process that serves it."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError, RunError
from motet.core.program import ClientList, InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.experiment.build.federation import ClientGroup, Federation, MultiTaskMetrics
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.deploy.remote_client import build_acceptance, model_fingerprint
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.tasks import Task
from motet.transport.admission import Admission
from motet.transport.connections import Connections
from motet.transport.spill_store import write_atomically

GIB = 2**30
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class NetworkOptions:
    """What gRPC and MQTT have in common. A simulation over a network starts `processes` on this machine for the clients."""

    bind: str = "127.0.0.1:0"
    clients: int | None = None  # so many silos, each with its own data; None: the recipe's own clients
    allow: str | None = None  # a file with the clients' names and hashes of their tokens
    key: str | None = None
    cert: str | None = None
    ca: str | None = None  # clients must show a certificate that it signed
    limit: float = 64.0  # GiB of one message
    processes: int = 2
    status: str | None = None  # host:port of the status page
    broker: str | None = None  # MQTT: host:port of the broker; None: one of our own, at `bind`
    channel: str = "motet"  # MQTT: the topic under which this run's topics are
    qos: int = 1  # MQTT
    chunk: int = 512  # MQTT: KiB of one packet, below the broker's limit
    user: str | None = None  # MQTT; its password is read from MOTET_MQTT_PASSWORD

    @property
    def of_silos(self) -> bool:
        """Whether the clients bring their own data."""
        return self.clients is not None or self.allow is not None

    def at(self, address: str) -> Any:
        """How MQTT's broker is spoken to."""
        from motet.transport.mqtt import BrokerConfig

        password = os.environ.get("MOTET_MQTT_PASSWORD")
        authority = Path(self.ca) if self.ca else None
        return BrokerConfig(address, self.channel, self.qos, self.chunk * 1024, self.user, password, authority)

    def __post_init__(self) -> None:
        if self.clients is not None and self.clients < 1:
            raise ConfigError(f"transport.clients is {self.clients}; at least 1 is needed.")
        if self.processes < 1:
            raise ConfigError(f"transport.processes is {self.processes}; at least 1 is needed.")


@dataclass(frozen=True, eq=False)
class RemoteFederation:
    """Clients who have their own data, of which the server knows nothing but their names and their groups."""

    here: Federation  # the server's own texts: labels, vocabulary, the global test set
    clients: ClientList
    groups: Mapping[ClientId, str]

    @property
    def seed(self) -> Seed:
        return self.here.seed

    @property
    def task(self) -> Task | MultiTaskMetrics:
        return self.here.task

    def group_for(self, client: ClientId) -> ClientGroup:
        wanted = self.groups.get(client, "")
        return next((group for group in self.here.groups if group.name == wanted), self.here.groups[0])

    def initial_models(self) -> InitialModels:
        return replace(self.here.initial_models(), clients=self.clients)

    def server_context(self, round: int) -> Any:
        return self.here.server_context(round)

    def context(self, client: ClientId, *_: Any) -> Any:
        raise RunError(f"{client}'s data are with {client}, so this can only be done there.")


@dataclass
class DeploymentRecord:
    """What a served run writes down about itself before anybody is let in, so that it can be served again."""

    path: Path
    run: str
    clients: list[ClientId]
    groups: dict[ClientId, str]  # of clients who are not all alike

    @staticmethod
    def open(folder: Path) -> DeploymentRecord:
        path = folder / "deployment.json"
        if path.exists():
            found = json.loads(path.read_text("utf-8"))
            return DeploymentRecord(path, found["run"], found["clients"], found.get("groups", {}))
        return DeploymentRecord(path, secrets.token_hex(8), [], {})

    def meet(self, client: ClientId, group: str) -> None:
        self.groups |= {client: group} if group else {}
        self.add(client)

    def add(self, *clients: ClientId) -> None:
        self.clients = sorted({*self.clients, *clients})
        said = {"run": self.run, "clients": self.clients, "groups": self.groups}
        write_atomically(self.path, json.dumps(said, indent=2).encode())


def load_allowed(path: str) -> dict[ClientId, str]:
    """Names and hashes of tokens, as `motet allow` writes them."""
    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"transport.allow: '{path}' cannot be read ({error}); make it with: motet allow {path} NAME…"
        ) from None
    if not isinstance(found, dict) or not all(isinstance(v, str) and len(v) == 64 for v in found.values()):
        raise ConfigError(
            f"transport.allow: '{path}' must map names to hashes of tokens; make it with: motet allow {path} NAME…"
        )
    return {str(name): value for name, value in found.items()}


@dataclass
class ClientListener:
    """Where a served run's clients are met: the links to them, and what the run knows of them."""

    links: Connections
    address: str
    book: DeploymentRecord
    here: Federation
    expected: int
    silos: bool

    def participants(self) -> Federation | RemoteFederation:
        return RemoteFederation(self.here, tuple(self.book.clients), self.book.groups) if self.silos else self.here

    def wait(self, quorum: float, told: Callable[[str], None]) -> None:
        """Until as many are here as a round needs; silos that have no list must all have come once, to be known."""
        needed = (
            self.expected
            if self.silos and len(self.book.clients) < self.expected
            else math.ceil(quorum * self.expected)
        )

        def say(here: Sequence[ClientId]) -> None:
            told(f"waiting for clients: {len(here)} of {needed} are here{': ' if here else ''}{', '.join(here[:10])}")

        self.links.wait_for_clients(needed, say)


def open_listener(
    config: RunConfig, folder: Path, options: NetworkOptions, here: Federation | None = None
) -> ClientListener:
    """Listen for clients as the recipe says. `here` is the federation, if somebody has made it already."""
    here = here or server_federation(config, options)
    book = DeploymentRecord.open(folder)
    tokens = load_allowed(options.allow) if options.allow else {}
    silos = options.clients is not None or bool(tokens)
    if tokens and options.clients is not None:
        raise ConfigError("transport.clients and transport.allow both say who the clients are; give one of them.")
    names = [*tokens] if tokens else book.clients if silos else [*here.clients]
    book.add(*(names if silos else ()))
    welcome = build_acceptance(config, here, book.run, secrets.token_hex(8))
    prints = {group.name: model_fingerprint(group.model) for group in here.groups} if silos else {}
    # silos hold their group's model; whoever plays the recipe's clients has all models, and compares the server's
    everybody = prints.popitem()[1] if len(prints) == 1 else model_fingerprint(here.model)
    door = Admission(welcome, everybody, tuple(names), options.clients or 0, tokens, book.meet, prints, {**book.groups})
    links = Connections(door, config.wait_policy.reconnect_timeout, int(options.limit * GIB))
    try:
        address = listen(config.transport.type, links, options)
    except BaseException:
        links.close()
        raise
    return ClientListener(links, address, book, here, options.clients or len(names), silos)


def check_remote_data(config: RunConfig, options: NetworkOptions) -> None:
    """What is asked of a corpus that lies in one place, and cannot be of silos."""
    share = max(group.data.dev_share for group in config.client_groups)
    if options.of_silos and share:
        raise ConfigError(
            f"data.dev_share is {share:g}, and a development set is drawn over the rows of all clients, which silos keep to "
            "themselves; leave it out."
        )


def server_federation(config: RunConfig, options: NetworkOptions) -> Federation:
    """Of silos the server divides nothing: its own texts stay together."""
    if not options.of_silos:
        return build_federation(config)
    one = ComponentConfig("uniform", {"clients": 1})
    groups = tuple(replace(group, clients=1, partition=one) for group in config.groups)
    return build_federation(replace(config, partition=one, groups=groups))


def listen(network: str, links: Connections, options: NetworkOptions) -> str:
    """Start the network; the address at which clients find it."""
    if network == "grpc":
        from motet.transport.grpc import TlsFiles, serve_grpc

        files = [Path(f) if f else None for f in (options.key, options.cert, options.ca)]
        if options.bind.rpartition(":")[0] not in LOOPBACK and not any(files):
            raise ConfigError(
                f"transport.bind is {options.bind}, where others can listen in; give TLS files (--key, --cert), "
                "or bind to 127.0.0.1."
            )
        return serve_grpc(links, options.bind, TlsFiles(*files) if any(files) else None)
    if network == "mqtt":
        return _at_broker(links, options)
    raise ConfigError(f"transport.type is {network}, whose clients are not served; use grpc or mqtt.")


def _at_broker(links: Connections, options: NetworkOptions) -> str:
    from motet.transport.mqtt import serve_mqtt

    if options.broker is not None:
        return serve_mqtt(links, options.at(options.broker))
    from motet.transport.local_broker import LocalBroker

    broker = LocalBroker(options.bind)
    serve_mqtt(links, options.at(broker.address))
    leave = links.stop_listening

    def stop() -> None:
        leave()
        broker.stop()

    links.stop_listening = stop
    return broker.address
