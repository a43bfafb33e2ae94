"""The client's side of Flower: a private socket at which the ClientApp of the SuperNode hands over messages.

Flower starts a new process for every message. A Motet client must outlive it: it holds its data, its model, and the
secrets of a secure sum, which never reach a disk. So the client is a process of its own, and the ClientApp only relays
bytes. In each visit it delivers the server's messages and takes away what the client has to say, if anything.
"""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from motet.core.errors import ConfigError
from motet.transport.flower_visit import HEADER_BYTES, VisitHeader
from motet.transport.framing import OutgoingMessage
from motet.transport.message_limits import JOIN_ANSWER
from motet.transport.receive_queue import ReceiveQueue

INVITATION_TIMEOUT = 30.0  # seconds that a client waits for the SuperNode before it reports that nobody came
VISIT_SECONDS = 20.0  # that a ClientApp waits for a reply; the server sends another one if the client still works
LINGER_SECONDS = 0.05  # after the first reply, for those of other clients of this process


class FlowerServerLink:
    """The client's end of a link that the server has opened."""

    def __init__(self, name: str) -> None:
        self.name, self.limit = name, JOIN_ANSWER.message_bytes
        self.received = ReceiveQueue()
        self.outbox: list[bytes] = []
        self.changed, self.is_closed = threading.Condition(), False

    def send(self, message: OutgoingMessage) -> None:
        with self.changed:
            if self.is_closed:
                raise ConnectionError("the server has opened a new link")
            self.outbox.append(b"".join(message.parts))
            self.changed.notify_all()

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.received.get(timeout)

    def limit_messages(self, message_bytes: int) -> None:
        self.limit = message_bytes

    def close(self, reason: str = "the link was closed") -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        self.received.put(ConnectionError(reason))

    def take_outgoing(self, timeout: float) -> list[bytes]:
        """Wait until the client has something to say, and return it; nothing if the link is closed or time is up."""
        with self.changed:
            if self.changed.wait_for(lambda: self.outbox or self.is_closed, timeout) and not self.is_closed:
                self.changed.wait_for(lambda: self.is_closed, LINGER_SECONDS)
            messages, self.outbox = self.outbox, []
        return messages


class FlowerSocket:
    """A socket in the file system that only its owner can open. `connect` returns the link that the server opens next."""

    def __init__(self, path: Path, visit_seconds: float = VISIT_SECONDS) -> None:
        self.path, self.visit_seconds = path, visit_seconds
        self.link: FlowerServerLink | None = None
        self.invitations: queue.SimpleQueue[FlowerServerLink] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.listener = _listen(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def connect(self, timeout: float = INVITATION_TIMEOUT) -> FlowerServerLink:
        try:
            link = self.invitations.get(timeout=timeout)
            while not self.invitations.empty():  # the last one counts
                link = self.invitations.get()
        except queue.Empty:
            raise ConnectionError(
                f"no ClientApp has connected to {self.path}; start the SuperNode with this path, and start a run."
            ) from None
        return link

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                visitor, _ = self.listener.accept()
            except OSError:
                return  # closed
            connection = Connection(visitor.detach())
            threading.Thread(target=self._serve_visit, args=(connection,), daemon=True).start()

    def _serve_visit(self, connection: Connection) -> None:
        """Serve one ClientApp. Whatever it sends wrongly ends its visit, and nothing else."""
        with connection, suppress(OSError, EOFError, ValueError):
            header = VisitHeader.from_bytes(connection.recv_bytes(HEADER_BYTES))
            link = self._find_link(header)
            if link is None:
                connection.send_bytes(header._replace(messages=0, lost=True).to_bytes())
                return
            for _ in range(header.messages):
                link.received.put(memoryview(connection.recv_bytes(link.limit)))
            messages = link.take_outgoing(self.visit_seconds)
            connection.send_bytes(header._replace(messages=len(messages)).to_bytes())
            for message in messages:
                connection.send_bytes(message)

    def _find_link(self, header: VisitHeader) -> FlowerServerLink | None:
        with self.lock:
            if header.number == 0:
                if self.link is not None:
                    self.link.close("the server has opened a new link")
                self.link = FlowerServerLink(header.link)
                self.invitations.put(self.link)
            is_open = self.link is not None and self.link.name == header.link and not self.link.is_closed
            return self.link if is_open else None


def _listen(path: Path) -> socket.socket:
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise ConfigError(f"a client already listens at '{path}'; stop it, or choose another --server.")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)  # before it listens, so that nobody else can connect. A umask would change all threads' files
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at '{path}' ({error.strerror or error}); with --transport flower, --server is the path of a "
            "socket in a folder that exists, of at most 100 characters."
        ) from None
    return listener
