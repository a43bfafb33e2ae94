"""One end of an MQTT link: sends messages as sealed packets, no faster than the other end reads them."""

from __future__ import annotations

import struct
import threading
from typing import Any

from motet.transport.framing import OutgoingMessage
from motet.transport.mqtt_broker import BrokerConfig
from motet.transport.mqtt_encryption import SealedLink

SEND_TIMEOUT = 60.0  # seconds in which the receiver must acknowledge a chunk
WINDOW = 8  # unacknowledged chunks per link
_CHUNK, _ACK, _CLOSE = b"c", b"a", b"x"  # kinds of packets
_ACK_COUNT = struct.Struct("<Q")  # the number of chunks received


class FlowControl:
    """Sends sealed packets on `topic`, with at most `WINDOW` chunks ahead of the acknowledgements.

    Acknowledgements go from end to end, because a broker drops messages if it receives more than it can deliver.
    """

    def __init__(self, client: Any, broker: BrokerConfig, topic: str, sealed: SealedLink) -> None:
        self.client, self.broker, self.topic, self.sealed = client, broker, topic, sealed
        self.messages_sent = self.chunks_sent = self.chunks_acknowledged = self.chunks_received = 0
        self.changed, self.closed = threading.Condition(), False
        self.publish_lock = threading.Lock()  # packets are published in the order in which they are sealed

    def send(self, message: OutgoingMessage) -> None:
        for chunk in message.chunks(self.messages_sent, self.broker.chunk_bytes):
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self._has_window(), SEND_TIMEOUT)
                if self.closed or not self._has_window():
                    raise ConnectionError("the link broke while sending")
                self.chunks_sent += 1
            self._publish(_CHUNK, chunk)
        self.messages_sent += 1

    def open_chunk(self, packet: bytes) -> bytes | None:
        """Return the chunk in a packet, and acknowledge it. Other packets are processed here; forged ones are ignored."""
        content = self.sealed.open(packet)
        if content is None:
            return None
        kind, body = content
        if kind == _CLOSE:
            raise ConnectionError("the other end closed it")
        if kind == _ACK and len(body) == _ACK_COUNT.size:
            with self.changed:
                self.chunks_acknowledged = max(self.chunks_acknowledged, _ACK_COUNT.unpack(body)[0])
                self.changed.notify_all()
        if kind != _CHUNK:
            return None
        self.chunks_received += 1
        if self.chunks_received % (WINDOW // 2) == 0:
            self._publish(_ACK, _ACK_COUNT.pack(self.chunks_received))
        return body

    def close(self, notify_peer: bool = True) -> None:
        with self.changed:
            was_closed, self.closed = self.closed, True
            self.changed.notify_all()
        if notify_peer and not was_closed:
            self._publish(_CLOSE, b"")

    def _publish(self, kind: bytes, body: bytes) -> None:
        with self.publish_lock:
            self.client.publish(self.topic, self.sealed.seal(kind, body), self.broker.qos)

    def _has_window(self) -> bool:
        return self.chunks_sent - self.chunks_acknowledged < WINDOW
