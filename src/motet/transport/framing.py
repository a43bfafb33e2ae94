"""Messages of any size in pieces of a fixed one: no network's limit on a message is a limit on a model."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from motet.core.errors import WireError
from motet.transport.receive_buffers import UNLIMITED, MessageBuffer, ReceiveBuffers
from motet.wire import encode_header
from motet.wire.format import buffer_bytes

_LEAD = struct.Struct(
    "<IIQ"
)  # the message's number on this link, the chunk's in the message, bytes of the whole message
CHUNK_HEADER_BYTES = _LEAD.size
UNADMITTED_LIMIT = 2**18  # bytes of a message from somebody who has not been let in yet


@dataclass(frozen=True, eq=False)
class OutgoingMessage:
    """A message ready to go: its tensors are windows on where they lie, so that what goes to all is held once."""

    parts: tuple[memoryview, ...]

    @staticmethod
    def of(value: object) -> OutgoingMessage:
        head, tensors = encode_header(value)
        return OutgoingMessage((memoryview(head), *(part for t in tensors if len(part := buffer_bytes(t)))))

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def chunks(self, number: int, size: int) -> Iterator[bytes]:
        """Each chunk is put together once: the only copy on the sender's side."""
        total, room, index = self.size, size, 0
        pieces: list[bytes | memoryview] = [_LEAD.pack(number % 2**32, 0, total)]
        for part in self.parts:
            at = 0
            while at < len(part):
                piece = part[at : at + room]
                pieces.append(piece)
                at, room = at + len(piece), room - len(piece)
                if not room:
                    yield b"".join(pieces)
                    index, room = index + 1, size
                    pieces = [_LEAD.pack(number % 2**32, index, total)]
        if len(pieces) > 1:
            yield b"".join(pieces)


class MessageAssembler:
    """Chunks of one sender, in order, back into messages. A chunk that comes twice is left out; one that is missing spoils
    its message."""

    def __init__(self, limit: int = UNADMITTED_LIMIT, room: ReceiveBuffers = UNLIMITED) -> None:
        self.limit, self.room = limit, room
        self.message, self.index, self.filled, self.total = -1, 0, 0, 0
        self.store: MessageBuffer | None = None

    def add(self, chunk: bytes | memoryview) -> memoryview | None:
        """The whole message, once its last chunk is there."""
        view = memoryview(chunk)
        if len(view) <= CHUNK_HEADER_BYTES:
            raise WireError(f"a chunk of {len(view)} bytes holds nothing; expected more than {CHUNK_HEADER_BYTES}.")
        message, index, total = _LEAD.unpack_from(view)
        body = view[CHUNK_HEADER_BYTES:]
        if message == self.message and index < self.index:
            return None
        if index == 0:
            self._begin(message, total)
        elif message != self.message or index != self.index or total != self.total:
            self.forget()
            raise WireError(f"chunk {index} of message {message} came out of order; the message is dropped.")
        if self.store is None or len(body) > total - self.filled:
            self.forget()
            raise WireError(f"a message announced {total} bytes and brought more; it is dropped.")
        self.store.add(body)
        self.filled, self.index = self.filled + len(body), self.index + 1
        if self.filled < total:
            return None
        whole, self.store = self.store.whole(), None
        return whole

    def _begin(self, message: int, total: int) -> None:
        self.forget()
        if total > self.limit:
            raise WireError(
                f"a message of {total} bytes was announced; at most {self.limit} are taken (transport.limit)."
            )
        self.message, self.total, self.store = message, total, self.room.store(total)

    def forget(self) -> None:
        """What there is of a message will never be whole."""
        self.message, self.index, self.filled, self.total = -1, 0, 0, 0
        self.store = None
