"""The MQTT transport, for phones and small devices. Server and clients meet at a broker; none of them needs an open port.

    <channel>/server       retained: the server is online; empty when it is gone (its last will)
    <channel>/up/<link>    chunks from a client; an empty payload, also as the client's last will, ends the link
    <channel>/down/<link>  chunks to a client; an empty payload ends the link

A link is one connection of one client, under a random name. The broker must control who may read and write which
topics.
"""

from __future__ import annotations

import queue
import re
import secrets
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError, WireError
from motet.transport.connections import Connections, describe_storage_error
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.message_limits import JOIN_ANSWER
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.receive_queue import ReceiveQueue

try:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion
except ImportError:  # pragma: no cover
    raise ConfigError("transport.type=mqtt needs paho-mqtt; run: pip install 'motet[mqtt]'") from None

MAX_LINKS = 10_000
CONNECT_TIMEOUT = 20.0  # seconds until the broker must accept the server
FIND_SERVER_TIMEOUT = 10.0  # seconds until a client must see the server's topic
SEND_TIMEOUT = 60.0  # seconds in which the receiver must acknowledge a chunk
WINDOW = 8  # unacknowledged chunks per link
_ACK = struct.Struct("<cQ")  # "+" and the number of chunks received; a chunk is longer
_LINK_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class BrokerConfig:
    """How to reach the broker.

    `authority` is a PEM file for the broker's certificate; with it the connection uses TLS.
    """

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

    def create_client(self, will_topic: str, retain_will: bool) -> Any:
        """Return a paho client that is not connected yet. Its last will is an empty payload on `will_topic`."""
        client = Client(CallbackAPIVersion.VERSION2, f"motet-{secrets.token_hex(8)}")
        client.will_set(will_topic, b"", self.qos, retain=retain_will)
        client.max_inflight_messages_set(0)  # unlimited: links have their own flow control
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        if self.authority is not None:
            client.tls_set_context(ssl.create_default_context(cafile=str(self.authority)))
        return client

    def connect(self, client: Any) -> None:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"the broker's address is '{self.address}'; expected host:port, such as 127.0.0.1:1883.")
        try:
            client.connect(host, int(port), keepalive=20)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no broker at {self.address}: {error}") from None


class _FlowControl:
    """One end of a link: sends messages in chunks on `topic`, at most `WINDOW` chunks ahead of the acknowledgements.

    Acknowledgements go from end to end, because a broker drops messages if it receives more than it can deliver.
    """

    def __init__(self, client: Any, broker: BrokerConfig, topic: str) -> None:
        self.client, self.broker, self.topic = client, broker, topic
        self.messages_sent = self.chunks_sent = self.chunks_acknowledged = self.chunks_received = 0
        self.changed, self.closed = threading.Condition(), False

    def send(self, message: OutgoingMessage) -> None:
        for chunk in message.chunks(self.messages_sent, self.broker.chunk_bytes):
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self._has_window(), SEND_TIMEOUT)
                if self.closed or not self._has_window():
                    raise ConnectionError("the link broke while sending")
                self.chunks_sent += 1
            self.client.publish(self.topic, chunk, self.broker.qos)
        self.messages_sent += 1

    def handle_packet(self, payload: bytes) -> bool:
        """Process a received packet.

        Return True for a chunk, which is acknowledged, and False for an acknowledgement.
        """
        if len(payload) == _ACK.size and payload[:1] == b"+":
            with self.changed:
                self.chunks_acknowledged = max(self.chunks_acknowledged, _ACK.unpack(payload)[1])
                self.changed.notify_all()
            return False
        self.chunks_received += 1
        if self.chunks_received % (WINDOW // 2) == 0:
            self.client.publish(self.topic, _ACK.pack(b"+", self.chunks_received), self.broker.qos)
        return True

    def close(self, notify_peer: bool = True) -> None:
        with self.changed:
            was_closed, self.closed = self.closed, True
            self.changed.notify_all()
        if notify_peer and not was_closed:
            self.client.publish(self.topic, b"", self.broker.qos)

    def _has_window(self) -> bool:
        return self.chunks_sent - self.chunks_acknowledged < WINDOW


# ---- Server
# -----------------------------------------------------------------------------------------------------------


class _MqttClientLink:
    """The server's end of a link: one client's two topics, and a thread that sends."""

    certified_name = None

    def __init__(
        self, flow: _FlowControl, name: str, buffers: ReceiveBuffers, on_closed: Callable[[str], None]
    ) -> None:
        self.name, self.peer, self.flow, self.on_closed = name, f"mqtt:{name[:8]}", flow, on_closed
        self.assembler = MessageAssembler(buffers=buffers)
        self.outbox: queue.SimpleQueue[OutgoingMessage | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._send_all, daemon=True)
        self.thread.start()

    def send(self, message: OutgoingMessage) -> None:
        self.outbox.put(message)

    def close(self) -> None:
        self.outbox.put(None)

    def _send_all(self) -> None:
        try:
            while (message := self.outbox.get()) is not None:
                self.flow.send(message)
        except ConnectionError:
            pass
        self.flow.close()
        self.on_closed(self.name)


class _MqttServer:
    """The server at the broker: creates a link for every new client, and passes received messages to `connections`."""

    def __init__(self, connections: Connections, broker: BrokerConfig) -> None:
        self.connections, self.broker = connections, broker
        self.links: dict[str, _MqttClientLink] = {}
        self.answered, self.connect_error = threading.Event(), ""
        self.client = broker.create_client(broker.topic("server"), retain_will=True)
        self.client.on_connect, self.client.on_disconnect = self._on_connect, self._on_disconnect
        self.client.on_message = self._on_message
        self.client.suppress_exceptions = True  # an error in a callback must not end the thread that serves everybody

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.connect_error = str(reason)
        else:
            client.subscribe(self.broker.topic("up", "+"), self.broker.qos)
            client.publish(self.broker.topic("server"), secrets.token_hex(8).encode(), 1, retain=True)
        self.answered.set()

    def _on_disconnect(self, *_: Any) -> None:
        """Close all links. Subscriptions do not survive a restart of the broker, so every client must connect again."""
        for name in [*self.links]:
            self._close_link(name)

    def _on_message(self, _: Any, __: Any, packet: Any) -> None:
        name = packet.topic.rpartition("/")[2]
        if not packet.payload:
            self._close_link(name)
            return
        link = self.links.get(name)
        if link is None:
            if not _LINK_NAME.fullmatch(name) or len(self.links) >= MAX_LINKS:
                return
            link = self._open_link(name)
        if not link.flow.handle_packet(packet.payload):
            return
        link.assembler.limit = self.connections.limits_for(link).message_bytes
        try:
            message = link.assembler.add(packet.payload)
        except (WireError, OSError) as error:  # perhaps the broker lost a chunk; on a new link the request is repeated
            reason = describe_storage_error(error) if isinstance(error, OSError) else str(error)
            self.connections.reject(link, reason)
            self._close_link(name)
            return
        if message is not None:
            self.connections.on_message(link, message)

    def _open_link(self, name: str) -> _MqttClientLink:
        flow = _FlowControl(self.client, self.broker, self.broker.topic("down", name))
        link = self.links[name] = _MqttClientLink(flow, name, self.connections.buffers, self._close_link)
        self.connections.on_connect(link)
        return link

    def _close_link(self, name: str) -> None:
        link = self.links.pop(name, None)
        if link is not None:
            link.flow.close()
            link.close()
            link.assembler.reset()
            self.connections.on_disconnect(link)

    def stop(self) -> None:
        for link in [*self.links.values()]:  # send what is still queued
            link.close()
            link.thread.join(5)
        with suppress(RuntimeError, ValueError):  # paho raises these if the broker is gone
            self.client.publish(self.broker.topic("server"), b"", 1, retain=True).wait_for_publish(5.0)
        self.client.disconnect()
        self.client.loop_stop()


def serve_mqtt(connections: Connections, broker: BrokerConfig) -> str:
    """Connect to the broker and pass messages to `connections`. Return the address that clients use."""
    server = _MqttServer(connections, broker)
    try:
        broker.connect(server.client)
    except ConnectionError as error:
        raise RunError(
            f"{error}; start one (mosquitto -p 1883), or leave transport.broker out to use the built-in broker."
        ) from None
    server.client.loop_start()
    if not server.answered.wait(CONNECT_TIMEOUT) or server.connect_error:
        server.client.loop_stop()
        raise RunError(
            f"the broker at {broker.address} rejected the server ({server.connect_error or 'no answer'}); "
            "check its user list."
        )
    connections.stop_listening = server.stop
    return broker.address


# ---- Client
# -----------------------------------------------------------------------------------------------------------


class MqttServerLink:
    """The client's end of a link."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker, self.name = broker, secrets.token_hex(16)
        self.received = ReceiveQueue()
        self.assembler, self.broken = MessageAssembler(JOIN_ANSWER.message_bytes), threading.Event()
        self.server_id: bytes | None = None
        self.answered, self.send_lock = threading.Event(), threading.Lock()
        self.client = broker.create_client(broker.topic("up", self.name), retain_will=False)
        self.client.on_connect, self.client.on_disconnect = self._on_connect, self._on_disconnect
        self.client.on_message = self._on_message
        self.flow = _FlowControl(self.client, broker, broker.topic("up", self.name))
        broker.connect(self.client)
        self.client.loop_start()
        if not self.answered.wait(FIND_SERVER_TIMEOUT) or self.broken.is_set():
            self.close()
            raise ConnectionError(f"no server on channel '{broker.channel}' of {broker.address}")

    def send(self, message: OutgoingMessage) -> None:
        with self.send_lock:
            if self.broken.is_set():
                raise ConnectionError("the link is broken")
            self.flow.send(message)

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.received.get(timeout)

    def limit_messages(self, message_bytes: int) -> None:
        self.assembler.limit = message_bytes

    def close(self) -> None:
        self.flow.close(notify_peer=not self.broken.is_set())
        self._break("closed")
        self.client.disconnect()
        if threading.current_thread() is not getattr(self.client, "_thread", None):
            self.client.loop_stop()

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._break(f"the broker rejected this client: {reason}")
            self.answered.set()
            return
        client.subscribe([(self.broker.topic("down", self.name), self.broker.qos), (self.broker.topic("server"), 1)])

    def _on_disconnect(self, *_: Any) -> None:
        self._break("the broker is gone")

    def _on_message(self, _: Any, __: Any, packet: Any) -> None:
        if packet.topic == self.broker.topic("server"):
            if self.server_id is None and packet.payload:
                self.server_id = packet.payload
                self.answered.set()
            elif self.server_id is not None and packet.payload != self.server_id:
                self._break("the server is gone")
        elif not packet.payload:
            self._break("the server closed it")
        elif self.flow.handle_packet(packet.payload):
            try:
                message = self.assembler.add(packet.payload)
            except WireError as error:
                self._break(str(error))
                return
            if message is not None:
                self.received.put(message)

    def _break(self, reason: str) -> None:
        self.broken.set()
        self.flow.close(notify_peer=False)
        self.received.put(ConnectionError(reason))
