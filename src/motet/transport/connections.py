"""The server's side of any network: who is connected, who still has to reply, and what to do with invalid messages."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from motet.core.errors import WireError
from motet.core.script import ClientId
from motet.transport.admission import Admission, ClientReady, JoinRequest, Rejection, RunFinished
from motet.transport.display_text import clean_text
from motet.transport.framing import OutgoingMessage
from motet.transport.message_limits import CLIENT_READY, JOIN_REQUEST, MessageLimits
from motet.transport.pending_links import PendingLinks
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

_log = logging.getLogger(__name__)
MAX_INVALID_MESSAGES = 10  # a link is closed after this many
MAX_COUNTED_SENDERS = 10_000
_DISK_SPACE, _OPEN_FILES = "disk space in TMPDIR", "a higher limit of open files (ulimit -n)"
_STORAGE_REMEDIES = {errno.ENOSPC: _DISK_SPACE, errno.EDQUOT: _DISK_SPACE, errno.EMFILE: _OPEN_FILES}


class ClientLink(Protocol):
    """The server's end of one connection. `certified_name` is the name in the client's TLS certificate."""

    @property
    def peer(self) -> str: ...
    @property
    def certified_name(self) -> str | None: ...
    def send(self, message: OutgoingMessage) -> None:
        """Queue a message and return at once."""

    def close(self) -> None:
        """End the link when all messages have been sent."""

    def abort(self) -> None:
        """End the link at once."""


class Connections:
    """A transport over links that come and go. A client that reconnects gets its unanswered request again.

    Each client has at most one open request; a new one replaces it. A client that is disconnected for longer than
    `reconnect_timeout` seconds while it has an open request has failed, and the mailbox decides what that means.
    """

    def __init__(
        self,
        admission: Admission,
        reconnect_timeout: float = 60.0,
        reply_limits: MessageLimits = MessageLimits(),
        buffers: ReceiveBuffers | None = None,
    ) -> None:
        self.admission, self.reconnect_timeout, self.reply_limits = admission, reconnect_timeout, reply_limits
        self.buffers = buffers or ReceiveBuffers()
        self.changed = threading.Condition()
        self.inbox: deque[Reply] = deque()
        self.links: dict[ClientId, ClientLink] = {}  # clients that are ready
        self.admitted: dict[ClientLink, tuple[ClientId, ...]] = {}
        self.ready: set[ClientLink] = set()  # admitted links with the right model
        self.pending = PendingLinks()
        self.open_requests: dict[ClientId, Request] = {}
        self.disconnected_at: dict[ClientId, float] = {}  # disconnected clients with an open request
        self.rejected: Counter[str] = Counter()  # invalid messages by sender
        self.stop_listening: Callable[[], None] = lambda: None  # set by the network
        self.run_finished: RunFinished | None = None

    # ---- Transport ----------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        self._close_if_revoked(request.client)
        with self.changed:
            self.open_requests[request.client] = request
            link = self.links.get(request.client)
            if self.admission.is_revoked(request.client):
                self.inbox.append(self._fail(request.client, "no longer allowed"))
                self.changed.notify_all()
            elif link is None:
                self.disconnected_at[request.client] = time.monotonic()
        if link is not None:
            link.send(OutgoingMessage.from_value(request))

    def receive(self, timeout: float) -> Reply | None:
        deadline = time.monotonic() + timeout
        with self.changed:
            while not self.inbox:
                now = time.monotonic()
                expired = (c for c, since in self.disconnected_at.items() if now - since >= self.reconnect_timeout)
                client = next(expired, None)
                if client is not None:
                    return self._fail(client, f"disconnected for {self.reconnect_timeout:g} s")
                if now >= deadline:
                    return None
                next_expiry = [since + self.reconnect_timeout for since in self.disconnected_at.values()]
                self.changed.wait(max(0.0, min([deadline, *next_expiry]) - now))
            return self.inbox.popleft()

    def close(self, ending: RunFinished | None = None) -> None:
        """Close all links. If the run is over, its clients are told so, also those that connect until this has ended.

        Without an ending the run may be resumed, and its clients keep trying to reach the server.
        """
        with self.changed:
            self.run_finished = ending
            links = list(self.admitted)
        for link in links:
            if ending is not None:
                link.send(OutgoingMessage.from_value(ending))
            link.close()
        stop, self.stop_listening = self.stop_listening, lambda: None
        stop()

    # ---- Called by the network ----------------------------------------------------------------------------------

    def on_connect(self, link: ClientLink) -> None:
        """Note a new link. It is closed if the client is not admitted in time, or if strangers open too many links."""
        self.pending.add(link)

    def limits_for(self, link: ClientLink) -> MessageLimits:
        """Return the limits of the next message on this link: a join request, then a fingerprint, then replies."""
        if link in self.ready:
            return self.reply_limits
        return CLIENT_READY if link in self.admitted else JOIN_REQUEST

    def on_message(self, link: ClientLink, data: memoryview | bytearray | bytes) -> None:
        """Process a complete message. Only the reply to an open request reaches the inbox. Raises no error."""
        try:
            self._dispatch(link, deserialize(data, self.limits_for(link).contents))
        except WireError as error:
            self.reject(link, str(error))
        except Exception as error:  # an error must not end a thread that serves other clients too
            _log.exception("a message from %s could not be processed", link.peer)
            reason = f"the server could not process your message ({type(error).__name__}); see its log."
            self.reject(link, reason, close_link=True)

    def reject(self, link: ClientLink, reason: str, close_link: bool = False) -> None:
        """Count an invalid message by its sender. Close the link after too many, or if the client was not admitted."""
        clients = self.admitted.get(link)
        sender = clients[0] if clients else link.peer
        with self.changed:
            if len(self.rejected) < MAX_COUNTED_SENDERS or sender in self.rejected:
                self.rejected[sender] += 1
        _log.warning("a message of %s was rejected: %s", sender, reason, extra={"client": sender})
        if close_link or not clients or self.rejected[sender] % MAX_INVALID_MESSAGES == 0:
            link.send(OutgoingMessage.from_value(Rejection(reason)))
            self.end_link(link)

    def end_link(self, link: ClientLink) -> None:
        """End a link when its messages have been sent, or after a while if its client does not read them."""
        self.pending.add(link)
        link.close()

    def on_disconnect(self, link: ClientLink) -> None:
        self.pending.remove(link)
        with self.changed:
            self.ready.discard(link)
            clients = self.admitted.pop(link, ())
            for client in clients:
                if self.links.get(client) is link:
                    del self.links[client]
                    _log.info("%s is disconnected", client, extra={"client": client})
                    if client in self.open_requests:
                        self.disconnected_at[client] = time.monotonic()
            others = {client for names in self.admitted.values() for client in names}
            self.admission.release([client for client in clients if client not in others])
            self.changed.notify_all()

    # ---- Called by the run --------------------------------------------------------------------------------------

    def wait_for_clients(
        self, count: int, on_waiting: Callable[[Sequence[ClientId]], None], interval: float = 5.0
    ) -> None:
        """Block until `count` clients are ready. Call `on_waiting` with the ready clients.

        It is called when they change, and every `interval` seconds.
        """
        while len(ready := self.connected_clients()) < count:
            on_waiting(ready)
            with self.changed:
                if sorted(self.links) == ready:
                    self.changed.wait(interval)

    def connected_clients(self) -> list[ClientId]:
        with self.changed:
            return sorted(self.links)

    def disconnected_clients(self) -> list[ClientId]:
        """Return the clients that are disconnected although they have an open request."""
        with self.changed:
            return sorted(self.disconnected_at)

    # ---- Private ------------------------------------------------------------------------------------------------

    def _fail(self, client: ClientId, reason: str) -> Reply:
        self.disconnected_at.pop(client, None)
        return Reply(self.open_requests.pop(client).id, client, error=reason)

    def _close_if_revoked(self, client: ClientId) -> None:
        link = self.links.get(client)
        if link is not None and self.admission.is_revoked(client):
            link.send(OutgoingMessage.from_value(Rejection("your token was revoked; ask for a new one.")))
            self.on_disconnect(link)
            self.end_link(link)

    def _dispatch(self, link: ClientLink, value: Any) -> None:
        match value:
            case JoinRequest() if link not in self.admitted:
                self._handle_join(link, value)
            case ClientReady() if link in self.admitted:
                self._handle_ready(link, value)
            case Reply() if link in self.ready:
                self._handle_reply(link, value)
            case _:
                raise WireError(f"a {type(value).__name__} is not expected here.")

    def _handle_join(self, link: ClientLink, request: JoinRequest) -> None:
        if self.run_finished is not None:
            link.send(OutgoingMessage.from_value(self.run_finished))
            return
        replaced = list[ClientLink]()
        with self.changed:  # or the end of an earlier link would release what this one has just claimed
            reason = self.admission.rejection_reason(request, link.certified_name)
            if reason is None:
                clients = set(request.clients)
                waiting = {k: names for k, names in self.admitted.items() if k not in self.ready}
                replaced = [k for k, names in waiting.items() if not clients.isdisjoint(names)]
                self.admitted[link] = request.clients
        if reason is not None:
            self.reject(link, reason)
            return
        for old_link in replaced:  # a client has at most one link on which it is not ready
            self.end_link(old_link)
        self.pending.set_admitted(link)
        link.send(OutgoingMessage.from_value(self.admission.acceptance))

    def _handle_ready(self, link: ClientLink, ready: ClientReady) -> None:
        clients = self.admitted[link]
        expected = self.admission.expected_fingerprint(clients[0])
        if ready.fingerprint != expected:
            reason = (
                "your model or tokenizer differs from the server's, although it has the same name; use the same files and "
                f"versions (fingerprint {ready.fingerprint[:12]}, the server's {expected[:12]})."
            )
            self.reject(link, reason, close_link=True)
            return
        if not self.admission.confirm(clients):  # disconnected in the meantime
            return
        self.pending.remove(link)
        with self.changed:
            if link not in self.admitted:
                return
            self.ready.add(link)
            replaced = {self.links[c] for c in clients if c in self.links} - {link}
            for client in clients:
                self.links[client] = link
                self.disconnected_at.pop(client, None)
            open_requests = [self.open_requests[c] for c in clients if c in self.open_requests]
            self.changed.notify_all()
        for client in clients:
            _log.info("%s is connected", client, extra={"client": client})
        for old_link in replaced:
            self._end_replaced(old_link, link, clients)
        for request in open_requests:
            link.send(OutgoingMessage.from_value(request))

    def _end_replaced(self, old_link: ClientLink, new_link: ClientLink, clients: Sequence[ClientId]) -> None:
        """End the earlier link of a client that has connected again.

        Usually it is dead, and this was not noticed yet. Otherwise a second process uses the name, and the first is told.
        """
        names = ", ".join(clients)
        _log.warning("%s has connected from %s; its connection from %s ends", names, new_link.peer, old_link.peer)
        reason = (
            f"{names} has joined again, from {new_link.peer}; only one process may use a name, so stop one of them."
        )
        old_link.send(OutgoingMessage.from_value(Rejection(reason)))
        self.end_link(old_link)

    def _handle_reply(self, link: ClientLink, reply: Reply) -> None:
        with self.changed:
            if link not in self.admitted:  # disconnected in the meantime
                return
            if reply.client not in self.admitted[link]:
                raise WireError("a client may reply only for itself.")
            request = self.open_requests.get(reply.client)
            if request is None or request.id != reply.id:
                return  # late, or sent twice
            if self.admission.is_revoked(reply.client):  # while it worked
                reply = self._fail(reply.client, "no longer allowed")
            self.open_requests.pop(reply.client, None)
            self.disconnected_at.pop(reply.client, None)
            self.inbox.append(reply if reply.error is None else replace(reply, error=clean_text(reply.error)))
            self.changed.notify_all()


def describe_storage_error(error: OSError) -> str:
    """Return what to tell a client if the server could not store its message."""
    remedy = _STORAGE_REMEDIES.get(error.errno or 0)
    hint = f"; the server needs {remedy}" if remedy else ""
    return f"the server cannot store your message ({error.strerror or error}){hint}."
