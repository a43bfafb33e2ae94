"""A small MQTT broker in this process, for trying MQTT without installing one. Use mosquitto or similar in production.

Nobody connects without a password. The server has its own; clients derive theirs from the server's key.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError
from motet.core.install_hint import install_command
from motet.transport.addresses import is_loopback, split_address
from motet.transport.mqtt_broker import DEFAULT_USER, BrokerConfig
from motet.transport.mqtt_encryption import ServerKey, derive_broker_password

try:
    from amqtt.broker import Broker
    from amqtt.plugins.topic_checking import TopicAccessControlListPlugin
    from pwdlib.hashers.argon2 import Argon2Hasher
except ImportError:  # pragma: no cover
    raise ConfigError(
        f"the built-in broker needs the package amqtt. Run: {install_command('mqtt')}, or set transport.broker."
    ) from None

START_TIMEOUT, STOP_TIMEOUT = 20, 10  # seconds
SERVER_USER = "server"
_LISTENER = {"type": "tcp", "max_connections": 1000}


class TopicPermissions(TopicAccessControlListPlugin):  # type: ignore[misc]  # amqtt has no types
    """amqtt's plugin with the option `subscribe_acl`, which replaces `acl` and is missing in amqtt's own `Config`."""

    @dataclass
    class Config:
        publish_acl: dict[str, list[str]]
        subscribe_acl: dict[str, list[str]]


class LocalBroker:
    """Runs in its own thread. `address` is for clients; `server_config` is for the server in this process.

    Beyond loopback, clients connect with TLS, and `certificate` and `private_key` are its PEM files.
    """

    def __init__(
        self, config: BrokerConfig, key: ServerKey, certificate: str | None = None, private_key: str | None = None
    ) -> None:
        for noisy in ("amqtt", "transitions"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        if not is_loopback(config.address) and not (certificate and private_key):
            raise ConfigError(
                f"transport.bind is {config.address}, which others can reach; pass TLS files (--key, --cert), "
                "or bind to 127.0.0.1."
            )
        self.address = _choose_port(config.address)
        self.channel, self.server_password = config.channel, secrets.token_hex(32)
        self.passwords = {DEFAULT_USER: derive_broker_password(key.public), SERVER_USER: self.server_password}
        listeners: dict[str, Any] = {"default": {**_LISTENER, "bind": self.address}}
        server_address = self.address
        if certificate and private_key:
            server_address = _choose_port("127.0.0.1:0")
            listeners["default"] |= {"ssl": True, "certfile": certificate, "keyfile": private_key}
            listeners["server"] = {**_LISTENER, "bind": server_address}
        self.server_config = replace(
            config, address=server_address, user=SERVER_USER, password=self.server_password, authority=None
        )
        self.loop = asyncio.new_event_loop()
        self.broker: Broker | None = None
        self.start_error: Exception | None = None
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(listeners,), daemon=True)
        self.thread.start()
        if not self.started.wait(START_TIMEOUT) or self.start_error is not None:
            raise RunError(f"no broker could be started on {self.address}: {self.start_error or 'no answer'}")

    def stop(self) -> None:
        if self.broker is not None:
            with suppress(TimeoutError):  # it waits for clients that do not disconnect
                asyncio.run_coroutine_threadsafe(self.broker.shutdown(), self.loop).result(STOP_TIMEOUT)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _run(self, listeners: dict[str, Any]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._start(listeners))
        except Exception as error:
            self.start_error = error
        self.started.set()
        self.loop.run_forever()

    async def _start(self, listeners: dict[str, Any]) -> None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # only its owner can read it
            file.writelines(f"{user}:{_hash_password(password)}\n" for user, password in self.passwords.items())
            file.flush()
            plugins = {
                "amqtt.plugins.authentication.FileAuthPlugin": {"password_file": Path(file.name)},
                f"{__name__}.{TopicPermissions.__name__}": self._topic_permissions(),
            }
            broker = Broker({"listeners": listeners, "plugins": plugins}, loop=self.loop)
        broker._subscriptions = _Subscriptions()
        await broker.start()
        self.broker = broker

    def _topic_permissions(self) -> dict[str, dict[str, list[str]]]:
        up, down, server = (f"{self.channel}/{name}" for name in ("up/+/+", "down/+/+", "server"))
        return {
            "publish_acl": {DEFAULT_USER: [up], SERVER_USER: [down, server]},
            "subscribe_acl": {DEFAULT_USER: [down, server], SERVER_USER: [up, server]},
        }


class _Subscriptions(dict[str, Any]):
    """Loops see the entries at their start.

    amqtt waits inside of its loops, and other clients subscribe meanwhile. With a plain dict, the client or the message
    of the loop would be lost.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().keys()))

    def items(self) -> Any:
        return list(super().items())


def _hash_password(password: str) -> str:
    """Hash a password of 32 random bytes. It cannot be guessed, so the hash may be cheap."""
    hashed: str = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)
    return hashed


def _choose_port(bind: str) -> str:
    host, port = split_address(bind)
    if port != "0":
        return bind
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"
