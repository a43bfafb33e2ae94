"""The client's side of any network: join the run, answer requests, and reconnect when the link breaks."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from motet.core.errors import ConfigError, RunError, WireError
from motet.core.script import ClientId
from motet.transport.admission import ClientReady, JoinAccepted, JoinRequest, Rejection, RunFinished
from motet.transport.client_runtime import ClientRuntime
from motet.transport.display_text import clean_text
from motet.transport.framing import OutgoingMessage
from motet.transport.journal import Journal
from motet.transport.link_errors import RejectedLoginError, UntrustedServerError
from motet.transport.message_limits import JOIN_ANSWER, REQUEST_CONTENTS, MessageLimits
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts to reach the server
JOIN_REPLY_TIMEOUT = 60.0  # seconds
RequestKey = tuple[str, int]  # server session and request ID; unique even if the server restarts


class ServerLink(Protocol):
    """The client's end of one connection."""

    def send(self, message: OutgoingMessage) -> None: ...
    def receive(self, timeout: float | None) -> memoryview | None:
        """Return the next message, or None if none arrives in time. Raise ConnectionError if the link is broken."""

    def limit_messages(self, message_bytes: int) -> None:
        """Accept no message that is longer. A new link accepts what a server answers to a join request."""

    def close(self) -> None: ...


class ClientSetup(NamedTuple):
    """What a client builds after the server has accepted it."""

    runtime: ClientRuntime
    journal: Journal
    fingerprint: str
    request_limits: MessageLimits = MessageLimits(contents=REQUEST_CONTENTS)


class ClientConnection:
    """Joins a run and answers its requests. A second thread keeps the link alive, also while the client trains.

    `connect` opens a link, `build_setup` builds the programs, data and model from the server's acceptance. The client
    gives up if it cannot reach the server for `give_up_after` seconds.
    """

    def __init__(
        self,
        connect: Callable[[], ServerLink],
        join_request: JoinRequest,
        build_setup: Callable[[JoinAccepted], ClientSetup],
        give_up_after: float = 600.0,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.connect, self.join_request, self.build_setup = connect, join_request, build_setup
        self.give_up_after, self.log = give_up_after, log
        # The news for the main thread: the client of a request in `waiting`, or how the run ended.
        self.inbox: queue.SimpleQueue[ClientId | RunFinished | Exception] = queue.SimpleQueue()
        self.waiting: dict[ClientId, tuple[RequestKey, Request]] = {}  # the newest request of each client
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.link: ServerLink | None = None
        self.setup: ClientSetup | None = None
        self.session = ""
        self.received: dict[ClientId, RequestKey] = {}  # the last requests that were received over the current link
        self.last_connected = time.monotonic()
        self.last_replies: dict[ClientId, tuple[RequestKey, Reply]] = {}  # sent again if they were lost

    def run(self) -> str:
        """Answer requests until the run is over. Return how it ended."""
        threading.Thread(target=self._maintain_link, daemon=True).start()
        try:
            while True:
                batch = self._next_requests()
                if isinstance(batch, RunFinished):
                    if batch.has_failed:
                        raise RunError(f"the run has failed at the server: {batch.reason}")
                    return batch.reason
                self._answer(batch)
        finally:
            self.close()

    def close(self) -> None:
        self.closed.set()
        with self.lock:
            if self.link is not None:
                self.link.close()

    # ---- Answering requests -------------------------------------------------------------------------------------

    def _next_requests(self) -> dict[ClientId, tuple[RequestKey, Request]] | RunFinished:
        """Wait for a request. Return the newest request of each client."""
        while True:
            news = self.inbox.get()
            if isinstance(news, Exception):
                raise news
            if isinstance(news, RunFinished):
                return news
            if self.inbox.empty():
                with self.lock:
                    requests, self.waiting = self.waiting, {}
                if requests:
                    return requests

    def _answer(self, batch: dict[ClientId, tuple[RequestKey, Request]]) -> None:
        if self.setup is None:
            raise RuntimeError("a request arrived before the client was accepted")
        keys: dict[int, RequestKey] = {}
        requests = []
        for client, (key, request) in batch.items():
            if client in self.last_replies and self.last_replies[client][0] == key:
                self.last_replies[client] = (key, self.setup.runtime.release(request, self.last_replies[client][1]))
                self._send_reply(client)
            else:
                self.last_replies.pop(client, None)  # free its memory for the new reply
                self.setup.journal.begin_request(request)
                keys[request.id] = key
                requests.append(request)
        for reply in self.setup.runtime.answer_requests(iter(requests)):
            self.last_replies[reply.client] = (keys[reply.id], reply)
            self._send_reply(reply.client)

    def _send_reply(self, client: ClientId) -> None:
        """Send a reply if its request came over the current link.

        If the link is broken, the server will repeat the request.
        """
        key, reply = self.last_replies[client]
        with self.lock:
            link = self.link if self.received.get(client) == key else None
        if link is not None:
            try:
                link.send(OutgoingMessage.from_value(reply))
            except ConnectionError:
                link.close()

    # ---- The link, in its own thread ----------------------------------------------------------------------------

    def _maintain_link(self) -> None:
        """Connect and listen. When the link breaks, connect again after a pause that doubles each time."""
        pause = FIRST_PAUSE
        while not self.closed.is_set():
            link = None
            try:
                link = self.connect()
                self._join(link)
                pause = FIRST_PAUSE
                self._listen(link)
            except ConnectionError as error:
                if self._has_given_up(error):
                    return
                self.closed.wait(pause * random.uniform(0.5, 1.0))
                pause = min(LONGEST_PAUSE, 2 * pause)
            except Exception as error:
                self.inbox.put(error)
                return
            finally:
                with self.lock:
                    self.link, self.received = None, {}
                if link is not None:
                    link.close()

    def _has_given_up(self, error: ConnectionError) -> bool:
        """Give up if the server was unreachable for too long, or the settings of this client are wrong.

        A quiet link counts as connected until it breaks.
        """
        if self.link is not None:
            self.last_connected = time.monotonic()
        has_wrong_settings = isinstance(error, UntrustedServerError | RejectedLoginError)
        if has_wrong_settings and self.setup is None:  # later, the server may be under repair
            self.inbox.put(ConfigError(str(error)))
            return True
        if time.monotonic() - self.last_connected > self.give_up_after:
            self.inbox.put(RunError(f"the server cannot be reached ({error}); tried for {self.give_up_after:g} s."))
            return True
        if not self.closed.is_set():
            self.log(f"no link to the server ({error}); trying again")
        return False

    def _join(self, link: ServerLink) -> None:
        link.send(OutgoingMessage.from_value(self.join_request))
        match self._receive_join_answer(link):
            case JoinAccepted() as acceptance:
                self.setup = self.build_setup(acceptance)
                self.session = acceptance.session
            case Rejection(reason):
                raise ConfigError(f"the server rejected this client: {clean_text(reason)}")
            case RunFinished() as finished:
                self._finish(finished)
                return
            case other:
                raise ConnectionError(f"the server answered with a {type(other).__name__}")
        with self.lock:
            self.link = link
        link.limit_messages(self.setup.request_limits.message_bytes)
        link.send(OutgoingMessage.from_value(ClientReady(self.setup.fingerprint)))

    def _receive_join_answer(self, link: ServerLink) -> Any:
        data = link.receive(JOIN_REPLY_TIMEOUT)
        if data is None:
            raise ConnectionError(f"the server did not answer within {JOIN_REPLY_TIMEOUT:g} s")
        try:
            return deserialize(data, JOIN_ANSWER.contents)
        except WireError as error:
            reason = clean_text(str(error)).rstrip(".")
        if self.setup is not None:  # this client has joined before: the server may be under repair
            raise ConnectionError(f"the server's answer cannot be read: {reason}")
        raise RunError(
            f"the server's answer cannot be read: {reason}. Use the address of a Motet server. Both sides need the same "
            "version of Motet, and the same packages with components."
        )

    def _listen(self, link: ServerLink) -> None:
        limits = self.setup.request_limits.contents if self.setup is not None else JOIN_ANSWER.contents
        while not self.closed.is_set():
            data = link.receive(None)
            if data is None:
                continue
            try:
                value = deserialize(data, limits)
            except WireError as error:
                self.log(f"the server sent an invalid message: {clean_text(str(error))}")
                continue
            match value:
                case Request():
                    self._accept_request(value)
                case RunFinished():
                    self._finish(value)
                case Rejection(reason):
                    raise ConfigError(f"the server closed the connection: {clean_text(reason)}")

    def _accept_request(self, request: Request) -> None:
        """Let a request wait for the main thread. It replaces an earlier one, so that requests do not fill the memory."""
        key, client = (self.session, request.id), request.client
        if client not in self.join_request.clients:
            return
        with self.lock:
            self.received[client] = key
            is_announced = client in self.waiting
            self.waiting[client] = (key, request)
        if not is_announced:
            self.inbox.put(client)

    def _finish(self, finished: RunFinished) -> None:
        self.closed.set()
        self.inbox.put(replace(finished, reason=clean_text(finished.reason)))
