"""How to reach an MQTT broker, and the topics of a run on it."""

from __future__ import annotations

import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.core.script import ClientId
from motet.transport.addresses import split_address
from motet.transport.link_errors import UntrustedServerError
from motet.transport.mqtt_encryption import derive_broker_password
from motet.transport.tls_diagnosis import PROBE_TIMEOUT, TlsFiles, build_tls_context, find_tls_error

try:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=mqtt needs the package paho-mqtt. Run: {install_command('mqtt')}") from None

DEFAULT_USER = "client"
LONGEST_PAUSE = 5  # seconds between two attempts to reach the broker again, as those of the clients
# MQTT 3.1.1, without a name and a user. Whether the broker accepts them or not, its answer begins with one byte.
_CONNECT_PACKET, _CONNECT_ANSWER = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00", b"\x20"


@dataclass(frozen=True)
class BrokerConfig:
    """How to reach the broker. `authority` is a PEM file for the broker's certificate; with it the connection uses TLS."""

    address: str
    channel: str = "motet"
    qos: int = 1
    chunk_bytes: int = 2**19  # below the broker's packet limit
    user: str | None = None
    password: str | None = None
    authority: Path | None = None

    def __post_init__(self) -> None:
        if self.qos not in (0, 1, 2):
            raise ConfigError(f"transport.qos is {self.qos}; expected 0, 1 or 2.")
        if not re.fullmatch(r"[\w./-]{1,100}", self.channel):
            raise ConfigError(
                f"transport.channel is '{self.channel}'; expected a topic of letters, digits and slashes."
            )

    def topic(self, *parts: str) -> str:
        return "/".join((self.channel, *parts))

    def create_client(self, server_key: bytes, will_topic: str, will: bytes, retain_will: bool) -> Any:
        """Return a paho client that is not connected yet. The broker publishes its last will when it is gone.

        Without a user, it logs in as the built-in broker expects it from everybody who knows the server's key.
        """
        client = Client(CallbackAPIVersion.VERSION2, f"motet-{secrets.token_hex(8)}")
        client.will_set(will_topic, will, self.qos, retain=retain_will)
        client.max_inflight_messages_set(0)  # unlimited: links have their own flow control
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        else:
            client.username_pw_set(DEFAULT_USER, derive_broker_password(server_key))
        if self.tls is not None:
            client.tls_set_context(build_tls_context(self.tls))
        client.reconnect_delay_set(1, LONGEST_PAUSE)
        client.suppress_exceptions = True  # an error in a callback must not end the network thread
        return client

    def connect(self, client: Any) -> None:
        host, port = split_address(self.address)
        if not host or not port.isdigit():
            raise ConfigError(f"the broker's address is '{self.address}'; expected host:port, such as 127.0.0.1:1883.")
        try:
            client.connect(host, int(port), keepalive=20)
        except (OSError, ValueError) as error:
            self.check_tls()
            raise ConnectionError(f"no broker at {self.address}: {error}") from None

    def describe_user(self) -> str:
        return "this client" if self.user is None else f"the user '{self.user}'"

    def describe_login(self) -> str:
        """Return the options with which a client logs in at the broker."""
        if self.user is None:
            return "--server-key or, if the broker has its own users, pass --user and MOTET_MQTT_PASSWORD"
        return "--user and MOTET_MQTT_PASSWORD"

    @property
    def tls(self) -> TlsFiles | None:
        return None if self.authority is None else TlsFiles(authority=self.authority)

    def check_tls(self) -> None:
        """Raise an error if the broker can be reached, but TLS fails with these settings."""
        error = find_tls_error(self.address, self.tls, "broker")
        if error is not None:
            raise error
        if self.tls is not None and self._answers_without_tls():
            raise UntrustedServerError(
                f"the broker at {self.address} does not use TLS; let it use TLS, or leave out --ca."
            )

    def _answers_without_tls(self) -> bool:
        host, port = split_address(self.address)
        try:
            with socket.create_connection((host, int(port)), PROBE_TIMEOUT) as connection:
                connection.sendall(_CONNECT_PACKET)
                return connection.recv(1) == _CONNECT_ANSWER
        except OSError:
            return False


def topic_name(client: ClientId) -> str:
    """Return a client's name as a level of a topic, where + and # would be wildcards."""
    return quote(client, safe="@")
