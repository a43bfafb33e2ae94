"""The MQTT transport, for phones and small devices. Server and clients meet at a broker; none of them needs an open port.

    <channel>/server                retained: the server is online; empty when it is gone (its last will)
    <channel>/up/<client>/<link>    packets from a client
    <channel>/down/<client>/<link>  packets to a client

A link is one connection of one client, under a random name. The broker is not trusted: every packet is encrypted between the
client and the server (`mqtt_encryption`), and one that was not sealed by the other end is ignored. The broker can only stop
messages. It should restrict each user to the topics with the user's name, so that clients cannot disturb each other.
"""

from __future__ import annotations

import logging
import queue
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from motet.core.errors import RunError, WireError
from motet.core.script import ClientId
from motet.transport.connections import Connections, describe_storage_error
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.link_errors import RejectedLoginError, TlsError
from motet.transport.message_limits import JOIN_ANSWER
from motet.transport.mqtt_broker import BrokerConfig, topic_name
from motet.transport.mqtt_encryption import (
    CLOSING_BYTES,
    ClientHandshake,
    LinkNames,
    ServerHandshake,
    ServerKey,
    is_hello,
)
from motet.transport.mqtt_flow_control import FlowControl
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.receive_queue import ReceiveQueue

_log = logging.getLogger(__name__)
CONNECT_TIMEOUT = 20.0  # seconds until the broker must accept the server
FIND_SERVER_TIMEOUT = 10.0  # seconds until a client must have an encrypted link to the server
LAST_MESSAGE_TIMEOUT = 3.0  # seconds in which the last message of a server that stopped must arrive
_LINK_NAME = re.compile(r"[0-9a-f]{32}")


# ---- Server ----------------------------------------------------------------------------------------------------------


class _MqttClientLink:
    """The server's end of a link: one client's two topics, and a thread that sends."""

    certified_name = None

    def __init__(
        self, flow: FlowControl, handshake: ServerHandshake, names: LinkNames, buffers: ReceiveBuffers
    ) -> None:
        self.flow, self.handshake = flow, handshake
        self.peer = f"mqtt:{names.client}:{names.link[:8]}"
        self.assembler = MessageAssembler(buffers=buffers)
        self.outbox: queue.SimpleQueue[OutgoingMessage | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None

    def start(self, on_closed: Callable[[], None]) -> None:
        self.thread = threading.Thread(target=self._send_all, args=(on_closed,), daemon=True)
        self.thread.start()

    def send(self, message: OutgoingMessage) -> None:
        self.outbox.put(message)

    def close(self) -> None:
        self.outbox.put(None)

    def abort(self) -> None:
        self.flow.close()
        self.close()

    def _send_all(self, on_closed: Callable[[], None]) -> None:
        try:
            while (message := self.outbox.get()) is not None:
                self.flow.send(message)
        except ConnectionError:
            pass
        self.flow.close()
        on_closed()


class _MqttServer:
    """The server at the broker: creates a link for every new client, and passes received messages to `connections`."""

    def __init__(self, connections: Connections, broker: BrokerConfig, key: ServerKey) -> None:
        self.connections, self.broker, self.key = connections, broker, key
        self.links: dict[str, _MqttClientLink] = {}  # by topic
        self.answered, self.connect_error, self.is_online = threading.Event(), "", False
        self.is_stopping, self.goodbye_returned = False, threading.Event()
        self.client = broker.create_client(key.public, broker.topic("server"), b"", retain_will=True)
        self.client.on_connect, self.client.on_disconnect = self._on_connect, self._on_disconnect
        self.client.on_message = self._on_message

    def log_in(self) -> None:
        self.broker.connect(self.client)
        self.client.loop_start()
        if self.answered.wait(CONNECT_TIMEOUT) and not self.connect_error:
            return
        self.client.loop_stop()
        if not self.answered.is_set():
            self.broker.check_tls()
        raise RunError(
            f"the broker at {self.broker.address} rejected the server ({self.connect_error or 'no answer'}); "
            "check its user list."
        )

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.connect_error = str(reason)
        else:
            if self.answered.is_set():
                _log.warning("the server is connected to the broker at %s again", self.broker.address)
            self.is_online = True
            client.subscribe([(self.broker.topic("up", "+", "+"), self.broker.qos), (self.broker.topic("server"), 1)])
            client.publish(self.broker.topic("server"), secrets.token_hex(8).encode(), 1, retain=True)
        self.answered.set()

    def _on_disconnect(self, *_: Any) -> None:
        """Close all links. Subscriptions do not survive a restart of the broker, so every client must connect again."""
        if self.is_online and not self.is_stopping:  # once, not after each attempt to connect again
            _log.warning(
                "the broker at %s is gone, so no client can be reached; trying to connect again", self.broker.address
            )
        self.is_online = False
        for topic in [*self.links]:
            self._close_link(topic)

    def _on_message(self, _: Any, __: Any, packet: Any) -> None:
        try:
            self._handle_packet(packet.topic, packet.payload)
        except ConnectionError:
            self._close_link(packet.topic)
        except Exception:  # one thread serves all clients
            _log.exception("a packet on %s could not be processed", packet.topic)
            self._close_link(packet.topic)

    def _handle_packet(self, topic: str, payload: bytes) -> None:
        link = self.links.get(topic)
        if topic == self.broker.topic("server"):
            if self.is_stopping and not payload:
                self.goodbye_returned.set()
        elif link is None:
            if is_hello(payload):
                self._open_link(topic, payload)
        elif link.handshake.is_closing(payload):
            self._close_link(topic)
        else:
            self._handle_chunk(topic, link, payload)

    def _handle_chunk(self, topic: str, link: _MqttClientLink, payload: bytes) -> None:
        chunk = link.flow.open_chunk(payload)
        if chunk is None:
            return
        link.assembler.limit = self.connections.limits_for(link).message_bytes
        try:
            message = link.assembler.add(chunk)
        except (WireError, OSError) as error:  # perhaps the broker lost a chunk; on a new link the request is repeated
            reason = describe_storage_error(error) if isinstance(error, OSError) else str(error)
            self.connections.reject(link, reason)
            self._close_link(topic)
            return
        if message is not None:
            self.connections.on_message(link, message)

    def _open_link(self, topic: str, hello: bytes) -> None:
        *_, client, name = topic.split("/")
        names = LinkNames(self.broker.channel, client, name)
        if not _LINK_NAME.fullmatch(name):
            return
        try:
            handshake = ServerHandshake(self.key, names, hello)
        except WireError:
            return
        down = self.broker.topic("down", client, name)
        flow = FlowControl(self.client, self.broker, down, handshake.link)
        link = self.links[topic] = _MqttClientLink(flow, handshake, names, self.connections.buffers)
        self.client.publish(down, handshake.answer, self.broker.qos)
        link.start(lambda: self._close_link(topic))
        self.connections.on_connect(link)

    def _close_link(self, topic: str) -> None:
        link = self.links.pop(topic, None)
        if link is not None:
            link.flow.close()
            link.close()
            link.assembler.reset()
            self.connections.on_disconnect(link)

    def stop(self) -> None:
        """Send what is still queued, say goodbye, and disconnect when the broker has passed everything on.

        A broker may drop what it has received from a client that disconnects. The goodbye comes back after all of it.
        """
        for link in [*self.links.values()]:
            link.close()
            if link.thread is not None:
                link.thread.join(5)
        self.is_stopping = True
        with suppress(RuntimeError, ValueError):  # paho raises these if the broker is gone
            self.client.publish(self.broker.topic("server"), b"", 1, retain=True).wait_for_publish(5.0)
            self.goodbye_returned.wait(LAST_MESSAGE_TIMEOUT)
        self.client.disconnect()
        self.client.loop_stop()


def serve_mqtt(connections: Connections, broker: BrokerConfig, key: ServerKey) -> str:
    """Connect to the broker and pass messages to `connections`. Return the address that clients use."""
    server = _MqttServer(connections, broker, key)
    try:
        server.log_in()
    except TlsError as error:
        raise RunError(str(error)) from None
    except ConnectionError as error:
        raise RunError(
            f"{error}; start one (mosquitto -p 1883), or leave transport.broker out to use the built-in broker."
        ) from None
    connections.stop_listening = server.stop
    return broker.address


# ---- Client ----------------------------------------------------------------------------------------------------------


class MqttServerLink:
    """The client's end of a link. `server_key` is the server's public key."""

    def __init__(self, broker: BrokerConfig, server_key: bytes, client: ClientId) -> None:
        self.broker = broker
        self.names = names = LinkNames(broker.channel, topic_name(client), secrets.token_hex(16))
        self.up, self.down = (broker.topic(way, names.client, names.link) for way in ("up", "down"))
        self.closing_payload = secrets.token_bytes(CLOSING_BYTES)
        self.handshake = ClientHandshake(server_key, names, self.closing_payload)
        self.flow: FlowControl | None = None
        self.received = ReceiveQueue()
        self.assembler, self.broken = MessageAssembler(JOIN_ANSWER.message_bytes), threading.Event()
        self.server_id: bytes | None = None
        self.answered, self.send_lock = threading.Event(), threading.Lock()
        self.is_logged_in, self.rejection = False, ""  # the broker's reason, if it rejects the user
        self.client = broker.create_client(server_key, self.up, self.closing_payload, retain_will=False)
        self.client.on_connect, self.client.on_disconnect = self._on_connect, self._on_disconnect
        self.client.on_message = self._on_message
        broker.connect(self.client)
        self.client.loop_start()
        if not self.answered.wait(FIND_SERVER_TIMEOUT) or self.broken.is_set():
            error = self._explain_failure()
            self.close()
            if not self.is_logged_in and not self.rejection:
                broker.check_tls()
            raise error

    def send(self, message: OutgoingMessage) -> None:
        with self.send_lock:
            if self.broken.is_set() or self.flow is None:
                raise ConnectionError("the link is broken")
            self.flow.send(message)

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.received.get(timeout)

    def limit_messages(self, message_bytes: int) -> None:
        self.assembler.limit = message_bytes

    def close(self) -> None:
        if not self.broken.is_set():
            self.client.publish(self.up, self.closing_payload, self.broker.qos)
        self._break("closed")
        self.client.disconnect()
        if threading.current_thread() is not getattr(self.client, "_thread", None):
            self.client.loop_stop()

    def _explain_failure(self) -> ConnectionError:
        """Return why there is no encrypted link to the server."""
        broker, names = self.broker, self.names
        user, where = broker.describe_user(), f"on channel '{names.channel}' of {broker.address}"
        if self.rejection:
            return RejectedLoginError(
                f"the broker at {broker.address} rejected {user} ({self.rejection}); check {broker.describe_login()}."
            )
        if not self.is_logged_in or self.broken.is_set():
            return ConnectionError(f"the broker at {broker.address} does not answer")
        if self.server_id is None:
            return ConnectionError(
                f"no server is online {where}; check --channel, and that {user} may read {broker.topic('server')}"
            )
        return ConnectionError(
            f"no server with this --server-key answers {where}; check the key, and that {user} may write "
            f"{broker.topic('up', names.client, '#')} and read {broker.topic('down', names.client, '#')}"
        )

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.rejection = str(reason)
            self._break("the broker rejected this client")
            self.answered.set()
            return
        self.is_logged_in = True
        client.subscribe([(self.down, self.broker.qos), (self.broker.topic("server"), 1)])

    def _on_disconnect(self, *_: Any) -> None:
        self._break("the broker is gone")
        self.answered.set()

    def _on_message(self, _: Any, __: Any, packet: Any) -> None:
        try:
            if packet.topic == self.broker.topic("server"):
                self._handle_presence(packet.payload)
            elif self.flow is None:
                self._finish_handshake(packet.payload)
            else:
                chunk = self.flow.open_chunk(packet.payload)
                message = None if chunk is None else self.assembler.add(chunk)
                if message is not None:
                    self.received.put(message)
        except (ConnectionError, WireError) as error:
            self._break(str(error))
        except Exception as error:
            _log.exception("a packet of the server could not be processed")
            self._break(type(error).__name__)

    def _handle_presence(self, payload: bytes) -> None:
        """Begin the handshake when the server is online, and break the link when it is gone or was restarted.

        A broker keeps the order of packets within a topic only. So the last message may arrive after the goodbye.
        """
        if self.server_id is None and payload:
            self.server_id = payload
            self.client.publish(self.up, self.handshake.hello, self.broker.qos)
        elif self.server_id is not None and payload != self.server_id:
            timer = threading.Timer(0.0 if payload else LAST_MESSAGE_TIMEOUT, self._break, ["the server is gone"])
            timer.daemon = True
            timer.start()

    def _finish_handshake(self, payload: bytes) -> None:
        sealed = self.handshake.finish(payload)
        if sealed is not None:  # an answer that others forged is ignored
            self.flow = FlowControl(self.client, self.broker, self.up, sealed)
            self.answered.set()

    def _break(self, reason: str) -> None:
        self.broken.set()
        if self.flow is not None:
            self.flow.close(notify_peer=False)
        self.received.put(ConnectionError(reason))
