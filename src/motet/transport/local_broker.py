"""A small MQTT broker in this process, for trying MQTT without installing one.

Use mosquitto or similar in production.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

from motet.core.errors import ConfigError, RunError

try:
    from amqtt.broker import Broker
except ImportError:  # pragma: no cover
    raise ConfigError(
        "the built-in broker needs amqtt; run: pip install 'motet[mqtt]', or set transport.broker"
    ) from None

START_TIMEOUT = 20  # seconds


class LocalBroker:
    """Runs in its own thread. `address` is `bind`, with port 0 replaced by a free port."""

    def __init__(self, bind: str) -> None:
        for noisy in ("amqtt", "transitions"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self.address = _choose_port(bind)
        self.loop = asyncio.new_event_loop()
        self.broker: Broker | None = None
        self.start_error: Exception | None = None
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        if not self.started.wait(START_TIMEOUT) or self.start_error is not None:
            raise RunError(f"no broker could be started on {self.address}: {self.start_error or 'no answer'}")

    def stop(self) -> None:
        if self.broker is not None:
            asyncio.run_coroutine_threadsafe(self.broker.shutdown(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._start())
        except Exception as error:
            self.start_error = error
        self.started.set()
        self.loop.run_forever()

    async def _start(self) -> None:
        listeners = {"default": {"type": "tcp", "bind": self.address, "max_connections": 1000}}
        plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        broker = Broker({"listeners": listeners, "plugins": plugins}, loop=self.loop)
        await broker.start()
        self.broker = broker


def _choose_port(bind: str) -> str:
    host, _, port = bind.rpartition(":")
    if port != "0":
        return bind
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"
