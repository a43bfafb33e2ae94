"""A small MQTT broker in this process, for a try-out without one; for real use take mosquitto or the like."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable

from motet.core.errors import ConfigError, RunError

try:
    from amqtt.broker import Broker
except ImportError:  # pragma: no cover
    raise ConfigError("a broker of our own needs amqtt; run: pip install 'motet[mqtt]', or give transport.broker") from None


def own_broker(bind: str) -> tuple[str, Callable[[], None]]:
    """Start it in a thread of its own; its address (a port 0 becomes a free one), and what stops it."""
    host, _, port = bind.rpartition(":")
    if port == "0":
        with socket.socket() as probe:
            probe.bind((host, 0))
            bind = f"{host}:{probe.getsockname()[1]}"
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    listeners = {"default": {"type": "tcp", "bind": bind, "max_connections": 1000}}
    started: list[Broker | Exception] = []
    ready = threading.Event()

    async def start() -> None:
        try:
            broker = Broker({"listeners": listeners, "plugins": plugins}, loop=loop)
            await broker.start()
            started.append(broker)
        except Exception as error:
            started.append(error)
        ready.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ready.wait(20)
    broker = started[0] if started else RuntimeError("no answer")
    if isinstance(broker, Exception):
        raise RunError(f"no broker could be started on {bind}: {broker}")

    def stop() -> None:
        asyncio.run_coroutine_threadsafe(broker.shutdown(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)

    return bind, stop
