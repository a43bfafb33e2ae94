"""The transports, and the options of `transport.type=grpc`, `mqtt`, `flower` and `mpi`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from motet.core.errors import ConfigError
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig

if TYPE_CHECKING:
    from motet.transport.mqtt_broker import BrokerConfig
    from motet.transport.tls_diagnosis import TlsFiles


TRANSPORTS = {
    "in_process": "simulated clients in this process; their jobs run in worker processes or on the GPU",
    "grpc": "remote clients with their own data (motet serve, motet join); with motet run, processes on this machine",
    "mqtt": "like grpc over a broker (transport.broker=host:port; default: built in), for clients that come and go",
    "flower": "like grpc over a SuperLink and SuperNodes of Flower, which starts the server: flwr run …",
    "mpi": "simulated clients, spread over the processes of a cluster: mpirun -n 5 motet run … --transport mpi",
    "ray": "simulated clients in this process; their jobs run on Ray actors, one per GPU or core (transport.address=…)",
}
DEFAULT_BIND = "127.0.0.1:8890"
FLOWER_HINT = (
    "transport.type is flower, so Flower must start the server: flwr run FOLDER SUPERLINK, with a folder as "
    "examples/motet-on-flower; see the guide on Flower."
)


def with_default_network(config: RunConfig) -> RunConfig:
    """Return a configuration that can be served: over gRPC at a fixed port, unless the recipe says otherwise."""
    kind = "grpc" if config.transport.type == "in_process" else config.transport.type
    return replace(config, transport=ComponentConfig(kind, {"bind": DEFAULT_BIND, **config.transport.options}))


@dataclass(frozen=True)
class NetworkOptions:
    """Where the server listens, who may join, and how connections are secured."""

    bind: str = "127.0.0.1:0"
    clients: int | None = None  # number of clients that bring their own data; None: the clients of the recipe
    allow: str | None = None  # file with the clients' names and hashes of their tokens
    allow_anyone: bool = False  # let anyone who reaches the server join, also from other machines
    key: str | None = None  # private key (PEM)
    cert: str | None = None  # certificate (PEM)
    ca: str | None = None  # certificate that must have signed the other side's (PEM)
    limit: float | None = None  # largest message of a client, in GiB; None: a few times the model
    processes: int = 2  # for `motet run`: processes on this machine that simulate the clients
    status: str | None = None  # host:port of the status page
    metrics: str | None = None  # host:port of the metrics for Prometheus
    broker: str | None = None  # MQTT: host:port of the broker; None: a built-in broker at `bind`
    channel: str = "motet"  # MQTT: prefix of the run's topics
    qos: int = 1  # MQTT
    chunk: int = 512  # MQTT: largest packet in KiB, below the broker's limit
    server_key: str | None = None  # MQTT: public key of the server, for clients
    user: str | None = None  # MQTT: the password is read from MOTET_MQTT_PASSWORD

    def __post_init__(self) -> None:
        if self.clients is not None and self.clients < 1:
            raise ConfigError(f"transport.clients is {self.clients}; expected at least 1.")
        if self.clients is not None and self.allow is not None:
            raise ConfigError("transport.clients and transport.allow both define the clients; use one of them.")
        if self.processes < 1:
            raise ConfigError(f"transport.processes is {self.processes}; expected at least 1.")

    @property
    def clients_bring_data(self) -> bool:
        """True if clients join with their own data; False if they simulate the recipe's clients."""
        return self.clients is not None or self.allow is not None

    def tls_files(self) -> TlsFiles | None:
        """Return the TLS files of this side; None if there are none."""
        from motet.transport.tls_diagnosis import TlsFiles

        files = [Path(file) if file else None for file in (self.key, self.cert, self.ca)]
        return TlsFiles(*files) if any(files) else None

    def broker_config(self, address: str) -> BrokerConfig:
        """Return how to reach the MQTT broker at an address."""
        from motet.transport.mqtt_broker import BrokerConfig

        password = os.environ.get("MOTET_MQTT_PASSWORD")
        ca = Path(self.ca) if self.ca else None
        return BrokerConfig(
            address=address,
            channel=self.channel,
            qos=self.qos,
            chunk_bytes=self.chunk * 1024,
            user=self.user,
            password=password,
            authority=ca,
        )


@dataclass(frozen=True)
class MpiOptions:
    """Options of `transport.type=mpi`."""

    devices: str | None = None  # file with a device map: which process has which GPU
    devices_key: str | None = None  # entry of the map; None: the first
