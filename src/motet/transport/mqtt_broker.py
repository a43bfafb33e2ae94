"""How to reach an MQTT broker, and the topics of a run on it."""

from __future__ import annotations

import re
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.core.script import ClientId
from motet.transport.addresses import split_address
from motet.transport.mqtt_encryption import derive_broker_password

try:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=mqtt needs paho-mqtt; run: {install_command('mqtt')}") from None

DEFAULT_USER = "client"


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
        if self.authority is not None:
            client.tls_set_context(ssl.create_default_context(cafile=str(self.authority)))
        client.suppress_exceptions = True  # an error in a callback must not end the network thread
        return client

    def connect(self, client: Any) -> None:
        host, port = split_address(self.address)
        if not host or not port.isdigit():
            raise ConfigError(f"the broker's address is '{self.address}'; expected host:port, such as 127.0.0.1:1883.")
        try:
            client.connect(host, int(port), keepalive=20)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no broker at {self.address}: {error}") from None


def topic_name(client: ClientId) -> str:
    """Return a client's name as a level of a topic, where + and # would be wildcards."""
    return quote(client, safe="@")
