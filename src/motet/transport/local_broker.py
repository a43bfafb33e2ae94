"""A small MQTT broker in this process, for a try-out without one; for real use take mosquitto or the like."""

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
        "a broker of our own needs amqtt; run: pip install 'motet[mqtt]', or give transport.broker"
    ) from None


class LocalBroker:
    """Lives in a thread of its own. Its address is `bind`, where a port 0 becomes a free one."""

    def __init__(self, bind: str) -> None:
        for noisy in ("amqtt", "transitions"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self.address = _with_port(bind)
        self.loop = asyncio.new_event_loop()
        self.broker: Broker | None = None
        self.trouble: Exception | None = None
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        if not self.ready.wait(20) or self.trouble is not None:
            raise RunError(f"no broker could be started on {self.address}: {self.trouble or 'no answer'}")

    def stop(self) -> None:
        if self.broker is not None:
            asyncio.run_coroutine_threadsafe(self.broker.shutdown(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._start())
        except Exception as error:
            self.trouble = error
        self.ready.set()
        self.loop.run_forever()

    async def _start(self) -> None:
        listeners = {"default": {"type": "tcp", "bind": self.address, "max_connections": 1000}}
        plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        broker = Broker({"listeners": listeners, "plugins": plugins}, loop=self.loop)
        await broker.start()
        self.broker = broker


def _with_port(bind: str) -> str:
    host, _, port = bind.rpartition(":")
    if port != "0":
        return bind
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"
