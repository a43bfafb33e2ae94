"""Splits messages into chunks and joins them again, so that the message limit of a network does not limit a model."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from motet.core.errors import WireError
from motet.transport.message_limits import JOIN_REQUEST
from motet.transport.receive_buffers import UNLIMITED, MessageBuffer, ReceiveBuffers
from motet.wire import encode_header
from motet.wire.format import buffer_bytes

# Message number on this link, chunk number in the message, bytes of the complete message.
_CHUNK_HEADER = struct.Struct("<IIQ")
CHUNK_HEADER_BYTES = _CHUNK_HEADER.size


@dataclass(frozen=True, eq=False)
class OutgoingMessage:
    """A serialized message. Its tensors are views, so a message to all clients is in memory once."""

    parts: tuple[memoryview, ...]

    @staticmethod
    def from_value(value: object) -> OutgoingMessage:
        header, buffers = encode_header(value)
        views = map(buffer_bytes, buffers)
        return OutgoingMessage((memoryview(header), *(view for view in views if len(view))))

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def chunks(self, number: int, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the chunks of the message. Joining a chunk is the only copy on the sender's side."""
        total, free, index = self.size, chunk_bytes, 0
        pieces: list[bytes | memoryview] = [_CHUNK_HEADER.pack(number % 2**32, 0, total)]
        for part in self.parts:
            start = 0
            while start < len(part):
                piece = part[start : start + free]
                pieces.append(piece)
                start, free = start + len(piece), free - len(piece)
                if not free:
                    yield b"".join(pieces)
                    index, free = index + 1, chunk_bytes
                    pieces = [_CHUNK_HEADER.pack(number % 2**32, index, total)]
        if len(pieces) > 1:
            yield b"".join(pieces)


class MessageAssembler:
    """Joins the chunks of one sender. A repeated chunk is ignored; after a missing chunk the message is dropped."""

    def __init__(self, limit: int = JOIN_REQUEST.message_bytes, buffers: ReceiveBuffers = UNLIMITED) -> None:
        self.limit, self.buffers = limit, buffers
        self.number, self.next_index, self.filled, self.total = -1, 0, 0, 0
        self.buffer: MessageBuffer | None = None

    def add(self, chunk: bytes | memoryview) -> memoryview | None:
        """Add a chunk. Return the message if this was its last chunk."""
        view = memoryview(chunk)
        if len(view) <= CHUNK_HEADER_BYTES:
            raise WireError(f"a chunk of {len(view)} bytes is empty; expected more than {CHUNK_HEADER_BYTES}.")
        number, index, total = _CHUNK_HEADER.unpack_from(view)
        body = view[CHUNK_HEADER_BYTES:]
        if number == self.number and index < self.next_index:
            return None
        if index == 0:
            self._begin(number, total)
        elif number != self.number or index != self.next_index or total != self.total:
            self.reset()
            raise WireError(f"chunk {index} of message {number} is out of order; the message is dropped.")
        if self.buffer is None or len(body) > total - self.filled:
            self.reset()
            raise WireError(f"a message announced {total} bytes and contains more; it is dropped.")
        self.buffer.append(body)
        self.filled, self.next_index = self.filled + len(body), self.next_index + 1
        if self.filled < total:
            return None
        message, self.buffer = self.buffer.view(), None
        return message

    def _begin(self, number: int, total: int) -> None:
        self.reset()
        if total > self.limit:
            raise WireError(
                f"a message of {total} bytes was announced; at most {self.limit} are accepted (transport.limit)."
            )
        self.number, self.total, self.buffer = number, total, self.buffers.allocate(total)

    def reset(self) -> None:
        """Drop an incomplete message and release its buffer."""
        self.number, self.next_index, self.filled, self.total = -1, 0, 0, 0
        self.buffer = None
