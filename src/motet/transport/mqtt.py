"""MQTT, for phones and small devices: server and clients meet at a broker, and none of them needs an open port.

    <channel>/server      retained: the server is here; empty once it is gone (its last will)
    <channel>/up/<link>   chunks from a client; an empty one, or the client's last will, ends the link
    <channel>/down/<link> chunks to a client; an empty one ends the link

A link is one stay of one client, under a random name. Who may read and write which topics is the broker's to guard.
"""

from __future__ import annotations

import queue
import re
import secrets
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError, WireError
from motet.transport.connections import Connections, describe_storage_error
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.receive_queue import ReceiveQueue

try:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion
except ImportError:  # pragma: no cover
    raise ConfigError("transport.type=mqtt needs paho-mqtt; run: pip install 'motet[mqtt]'") from None

MAX_LINKS = 10_000
JOIN_TIMEOUT = 30.0  # seconds for a newcomer's first words
WINDOW = 8  # chunks under way on a link
STALL = 60.0  # seconds in which the other end must take something in
_WORD = struct.Struct("<cQ")  # "+" and how many chunks have come; a chunk is longer
_LINK = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class BrokerConfig:
    """Where the broker is and how it is spoken to. Over TLS if `authority` is given, the broker's certificate's (PEM)."""

    address: str
    channel: str = "motet"
    qos: int = 1
    chunk: int = 2**19  # bytes; below the broker's limit on a packet
    user: str | None = None
    password: str | None = None
    authority: Path | None = None

    def __post_init__(self) -> None:
        if self.qos not in (0, 1, 2):
            raise ConfigError(f"transport.qos is {self.qos}; it is 0, 1 or 2.")
        if not re.fullmatch(r"[\w./-]{1,100}", self.channel):
            raise ConfigError(f"transport.channel is '{self.channel}'; it is a topic of letters, digits and slashes.")

    def topic(self, *parts: str) -> str:
        return "/".join((self.channel, *parts))

    def client(self, will: tuple[str, bytes, bool]) -> Any:
        """A paho client with its last will, not connected yet."""
        client = Client(CallbackAPIVersion.VERSION2, f"motet-{secrets.token_hex(8)}")
        client.will_set(will[0], will[1], self.qos, retain=will[2])
        client.max_inflight_messages_set(0)  # links hold back by themselves
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        if self.authority is not None:
            client.tls_set_context(ssl.create_default_context(cafile=str(self.authority)))
        return client

    def connect(self, client: Any) -> None:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"'{self.address}' is no broker's address; expected host:port, such as 127.0.0.1:1883.")
        try:
            client.connect(host, int(port), keepalive=20)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no broker at {self.address}: {error}") from None


class _FlowControl:
    """One end of a link: parcels go out on `topic` in chunks, a few ahead of the other end's word that it has them.

    The word goes from end to end, because a broker that is told more than it can pass on drops what is too much.
    """

    def __init__(self, client: Any, broker: BrokerConfig, topic: str) -> None:
        self.client, self.broker, self.topic = client, broker, topic
        self.parcels = self.sent = self.known = self.taken = 0  # of chunks: sent, known to have come, taken in
        self.moved, self.gone = threading.Condition(), False

    def send(self, parcel: OutgoingMessage) -> None:
        for chunk in parcel.chunks(self.parcels, self.broker.chunk):
            with self.moved:
                self.moved.wait_for(lambda: self.gone or self.sent - self.known < WINDOW, STALL)
                if self.gone or self.sent - self.known >= WINDOW:
                    raise ConnectionError("the link broke while sending")
                self.sent += 1
            self.client.publish(self.topic, chunk, self.broker.qos)
        self.parcels += 1

    def took(self, payload: bytes) -> bool:
        """A packet came: True if it is a chunk, which is then acknowledged; else it was the other end's word."""
        if len(payload) == _WORD.size and payload[:1] == b"+":
            with self.moved:
                self.known = max(self.known, _WORD.unpack(payload)[1])
                self.moved.notify_all()
            return False
        self.taken += 1
        if self.taken % (WINDOW // 2) == 0:
            self.client.publish(self.topic, _WORD.pack(b"+", self.taken), self.broker.qos)
        return True

    def end(self, said: bool = True) -> None:
        with self.moved:
            was, self.gone = self.gone, True
            self.moved.notify_all()
        if said and not was:
            self.client.publish(self.topic, b"", self.broker.qos)


# ---- the server -------------------------------------------------------------------------------------------------------


class _MqttClientLink:
    """A link: one client's two topics, with a thread that sends."""

    certified = None

    def __init__(self, flow: _FlowControl, name: str, room: ReceiveBuffers) -> None:
        self.peer, self.flow = f"mqtt:{name[:8]}", flow
        self.assembly = MessageAssembler(room=room)
        self.outbox: queue.SimpleQueue[OutgoingMessage | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def push(self, parcel: OutgoingMessage) -> None:
        self.outbox.put(parcel)

    def close(self) -> None:
        self.outbox.put(None)

    def _send(self) -> None:
        try:
            while (parcel := self.outbox.get()) is not None:
                self.flow.send(parcel)
        except ConnectionError:
            pass
        self.flow.end()


class _MqttServer:
    """The server at the broker: makes a link of every newcomer, and tells the links what is heard."""

    def __init__(self, links: Connections, broker: BrokerConfig) -> None:
        self.links, self.broker = links, broker
        self.routes: dict[str, _MqttClientLink] = {}
        self.here, self.refused = threading.Event(), ""
        self.client = broker.client((broker.topic("server"), b"", True))
        self.client.on_connect, self.client.on_disconnect = self._connected, self._disconnected
        self.client.on_message = self._heard

    def _connected(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.refused = str(reason)
        else:
            client.subscribe(self.broker.topic("up", "+"), self.broker.qos)
            client.publish(self.broker.topic("server"), secrets.token_hex(8).encode(), 1, retain=True)
        self.here.set()

    def _disconnected(self, *_: Any) -> None:
        """Nobody's subscriptions outlive a broker: all come again when it is back."""
        for name in [*self.routes]:
            self._end(name)

    def _heard(self, _: Any, __: Any, message: Any) -> None:
        name = message.topic.rpartition("/")[2]
        if not message.payload:
            self._end(name)
            return
        route = self.routes.get(name)
        if route is None:
            if not _LINK.fullmatch(name) or len(self.routes) >= MAX_LINKS:
                return
            flow = _FlowControl(self.client, self.broker, self.broker.topic("down", name))
            route = self.routes[name] = _MqttClientLink(flow, name, self.links.room)
            timer = threading.Timer(JOIN_TIMEOUT, self._hush, (name,))
            timer.daemon = True
            timer.start()
        if not route.flow.took(message.payload):
            return
        route.assembly.limit = self.links.limit_of(route)
        try:
            whole = route.assembly.add(message.payload)
        except (WireError, OSError) as error:  # perhaps the broker lost something: a new link is asked again
            self.links.rubbish(route, describe_storage_error(error) if isinstance(error, OSError) else str(error))
            self._end(name)
            return
        if whole is not None:
            self.links.heard(route, whole)

    def _hush(self, name: str) -> None:
        route = self.routes.get(name)
        if route is not None and route not in self.links.names:
            self._end(name)

    def _end(self, name: str) -> None:
        route = self.routes.pop(name, None)
        if route is not None:
            route.flow.end()
            route.close()
            route.assembly.forget()
            self.links.broke(route)

    def stop(self) -> None:
        for route in [*self.routes.values()]:  # what is to be said to them is said first
            route.close()
            route.thread.join(5)
        with suppress(RuntimeError, ValueError):  # paho's words for a broker that is gone
            self.client.publish(self.broker.topic("server"), b"", 1, retain=True).wait_for_publish(5.0)
        self.client.disconnect()
        self.client.loop_stop()


def serve_mqtt(links: Connections, broker: BrokerConfig) -> str:
    """Take a place at the broker and tell `links` what is heard; the address clients use."""
    desk = _MqttServer(links, broker)
    try:
        broker.connect(desk.client)
    except ConnectionError as error:
        raise RunError(
            f"{error}; start one (mosquitto -p 1883), or leave transport.broker out for one of our own."
        ) from None
    desk.client.loop_start()
    if not desk.here.wait(20) or desk.refused:
        desk.client.loop_stop()
        raise RunError(
            f"the broker at {broker.address} did not let us in ({desk.refused or 'no answer'}); check its user list."
        )
    links.stop = desk.stop
    return broker.address


# ---- a client ---------------------------------------------------------------------------------------------------------


class MqttServerLink:
    """A client's stay at the broker."""

    def __init__(self, broker: BrokerConfig, limit: int = 2**36) -> None:
        self.broker, self.name = broker, secrets.token_hex(16)
        self.arrivals = ReceiveQueue()
        self.assembly, self.broken = MessageAssembler(limit), threading.Event()
        self.server: bytes | None = None
        self.there, self.sending = threading.Event(), threading.Lock()
        self.client = broker.client((broker.topic("up", self.name), b"", False))
        self.client.on_connect, self.client.on_disconnect = self._connected, self._lost
        self.client.on_message = self._heard
        self.flow = _FlowControl(self.client, broker, broker.topic("up", self.name))
        broker.connect(self.client)
        self.client.loop_start()
        if not self.there.wait(10) or self.broken.is_set():
            self.close()
            raise ConnectionError(f"no server on channel '{broker.channel}' of {broker.address}")

    def send(self, parcel: OutgoingMessage) -> None:
        with self.sending:
            if self.broken.is_set():
                raise ConnectionError("the link is broken")
            self.flow.send(parcel)

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.arrivals.next(timeout)

    def close(self) -> None:
        self.flow.end(said=not self.broken.is_set())
        self._break("closed")
        self.client.disconnect()
        if threading.current_thread() is not getattr(self.client, "_thread", None):
            self.client.loop_stop()

    def _connected(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._break(f"the broker does not let us in: {reason}")
            self.there.set()
            return
        client.subscribe([(self.broker.topic("down", self.name), self.broker.qos), (self.broker.topic("server"), 1)])

    def _lost(self, *_: Any) -> None:
        self._break("the broker is gone")

    def _heard(self, _: Any, __: Any, message: Any) -> None:
        if message.topic == self.broker.topic("server"):
            if self.server is None and message.payload:
                self.server = message.payload
                self.there.set()
            elif self.server is not None and message.payload != self.server:
                self._break("the server is gone")
        elif not message.payload:
            self._break("the server closed it")
        elif self.flow.took(message.payload):
            try:
                whole = self.assembly.add(message.payload)
            except WireError as error:
                self._break(str(error))
                return
            if whole is not None:
                self.arrivals.put(whole)

    def _break(self, why: str) -> None:
        self.broken.set()
        self.flow.end(said=False)
        self.arrivals.put(ConnectionError(why))
