"""A client's side of any network: say hello, answer what is asked, and come back when the link breaks."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from motet.core.errors import ConfigError, RunError, WireError
from motet.core.script import ClientId
from motet.transport.admission import ClientReady, JoinAccepted, JoinRequest, Rejection, RunFinished
from motet.transport.client_runtime import ClientRuntime
from motet.transport.framing import OutgoingMessage
from motet.transport.journal import Journal
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

LONGEST_PAUSE = 5.0  # seconds between two attempts to reach the server
RequestKey = tuple[str, int]  # a server's session and the number it gave: one request, and no other


class ServerLink(Protocol):
    """A connection as a client sees it: the same three verbs."""

    def send(self, parcel: OutgoingMessage) -> None: ...
    def receive(self, timeout: float | None) -> memoryview | None:
        """The next message; None when none came in time. Raises ConnectionError when the connection is gone."""

    def close(self) -> None: ...


class ClientSetup(NamedTuple):
    """What a client has built from the server's welcome."""

    host: ClientRuntime
    journal: Journal
    fingerprint: str


class ClientConnection:
    """Keeps a line to the server in a thread of its own, so that it is mended even while this client is at work.

    `dial` connects; `prepare` builds this side from the server's welcome.
    """

    def __init__(
        self,
        dial: Callable[[], ServerLink],
        hello: JoinRequest,
        prepare: Callable[[JoinAccepted], ClientSetup],
        give_up: float = 600.0,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.dial, self.hello, self.prepare, self.give_up, self.told = dial, hello, prepare, give_up, told
        self.inbox: queue.SimpleQueue[tuple[RequestKey, Request] | RunFinished | Exception] = queue.SimpleQueue()
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.line: ServerLink | None = None
        self.side: ClientSetup | None = None
        self.session = ""
        self.asked: set[RequestKey] = set()  # over this line
        self.heard = time.monotonic()  # when there was a link last
        self.last: dict[ClientId, tuple[RequestKey, Reply]] = {}  # in case an answer got lost on its way

    def attend(self) -> str:
        """Answer requests until the run is over; how it ended."""
        threading.Thread(target=self._keep, daemon=True).start()
        try:
            while True:
                items = self._waiting()
                if isinstance(items, RunFinished):
                    return items.why
                self._answer(items)
        finally:
            self.close()

    def close(self) -> None:
        self.closed.set()
        with self.lock:
            if self.line is not None:
                self.line.close()

    # ---- answering ----------------------------------------------------------------------------------------------

    def _waiting(self) -> dict[ClientId, tuple[RequestKey, Request]] | RunFinished:
        """What is waiting now, the newest of each client; waits for the first."""
        found: dict[ClientId, tuple[RequestKey, Request]] = {}
        item = self.inbox.get()
        while True:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, RunFinished):
                return item
            found[item[1].client] = item
            if self.inbox.empty():
                return found
            item = self.inbox.get()

    def _answer(self, items: dict[ClientId, tuple[RequestKey, Request]]) -> None:
        if self.side is None:
            raise RuntimeError("a request came before the welcome")
        todo: dict[int, RequestKey] = {}
        requests = []
        for client, (mark, request) in items.items():
            if client in self.last and self.last[client][0] == mark:
                self._send(client)
            elif client in self.hello.clients:
                self.last.pop(client, None)  # its memory is needed for the new answer
                self.side.journal.turn(request)
                todo[request.id] = mark
                requests.append(request)
        for reply in self.side.host.replies(iter(requests)):
            self.last[reply.client] = (todo[reply.id], reply)
            self._send(reply.client)

    def _send(self, client: ClientId) -> None:
        """If the server that is there now has asked for it. If the line is broken, it will ask again."""
        mark, reply = self.last[client]
        with self.lock:
            line = self.line if mark in self.asked else None
        if line is not None:
            try:
                line.send(OutgoingMessage.of(reply))
            except ConnectionError:
                line.close()

    # ---- the line, in a thread of its own -----------------------------------------------------------------------

    def _keep(self) -> None:
        """Connect, listen; when the line breaks, wait a little longer each time, and connect again."""
        pause = 0.1
        while not self.closed.is_set():
            line = None
            try:
                line = self.dial()
                self._introduce(line)
                pause = 0.1
                self._listen(line)
            except ConnectionError as error:
                if self.line is not None:  # until now it stood, however long nothing was said
                    self.heard = time.monotonic()
                if time.monotonic() - self.heard > self.give_up:
                    self.inbox.put(
                        RunError(f"the server cannot be reached ({error}); it was tried for {self.give_up:g} s.")
                    )
                    return
                if not self.closed.is_set():
                    self.told(f"no link to the server ({error}); trying again")
                self.closed.wait(pause * random.uniform(0.5, 1.0))
                pause = min(LONGEST_PAUSE, 2 * pause)
            except Exception as error:
                self.inbox.put(error)
                return
            finally:
                with self.lock:
                    self.line, self.asked = None, set()
                if line is not None:
                    line.close()

    def _introduce(self, line: ServerLink) -> None:
        line.send(OutgoingMessage.of(self.hello))
        match _understood(line, 60.0):
            case JoinAccepted() as welcome:
                self.side = self.prepare(welcome)
                self.session = welcome.session
            case Rejection(why):
                raise ConfigError(f"the server does not let us in: {why}")
            case RunFinished() as over:
                self._over(over)
                return
            case other:
                raise ConnectionError(f"the server answered with a {type(other).__name__}")
        with self.lock:
            self.line = line
        line.send(OutgoingMessage.of(ClientReady(self.side.fingerprint)))

    def _listen(self, line: ServerLink) -> None:
        while not self.closed.is_set():
            data = line.receive(None)
            if data is None:
                continue
            try:
                value = deserialize(data)
            except WireError as error:
                self.told(f"the server sent something that is no message: {error}")
                continue
            match value:
                case Request():
                    mark = (self.session, value.id)
                    with self.lock:
                        self.asked.add(mark)
                    self.inbox.put((mark, value))
                case RunFinished():
                    self._over(value)
                case Rejection(why):
                    raise ConfigError(f"the server sent us away: {why}")

    def _over(self, farewell: RunFinished) -> None:
        self.closed.set()
        self.inbox.put(farewell)


def _understood(line: ServerLink, timeout: float) -> Any:
    data = line.receive(timeout)
    if data is None:
        raise ConnectionError(f"the server said nothing for {timeout:g} s")
    try:
        return deserialize(data)
    except WireError as error:
        raise ConnectionError(f"what answers there is no Motet server: {error}") from None
