"""The server's side of any network: who is connected, who owes an answer, and what strangers send."""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from motet.core.errors import WireError
from motet.core.script import ClientId
from motet.transport.admission import Admission, ClientReady, JoinRequest, Rejection, RunFinished
from motet.transport.framing import UNADMITTED_LIMIT, OutgoingMessage
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.requests import Reply, Request
from motet.wire import deserialize
from motet.wire.format import HEADER_LIMIT

MAX_INVALID_MESSAGES = 10  # messages that make no sense, after which a link is closed
DISK, FILES = "room on disk, in TMPDIR", "a higher limit of open files (ulimit -n)"
REMEDIES = {errno.ENOSPC: DISK, errno.EDQUOT: DISK, errno.EMFILE: FILES}


class ClientLink(Protocol):
    """One connection. `peer` is where it comes from, `certified` the name in its certificate."""

    @property
    def peer(self) -> str: ...
    @property
    def certified(self) -> str | None: ...
    def push(self, parcel: OutgoingMessage) -> None:
        """Send, without waiting until it is sent."""

    def close(self) -> None: ...


class Connections:
    """A transport over connections that come and go: a client that comes back is asked again what it has not answered.

    At most one question is open a client; a new one takes the place of the old. A client that is away for longer than
    `absence` seconds while an answer is due has failed, and the mailbox decides what that means.
    """

    def __init__(
        self, door: Admission, absence: float = 60.0, limit: int = 2**36, room: ReceiveBuffers | None = None
    ) -> None:
        self.door, self.absence, self.limit = door, absence, limit
        self.room = room or ReceiveBuffers()
        self.news = threading.Condition()
        self.inbox: deque[Reply] = deque()
        self.links: dict[ClientId, ClientLink] = {}
        self.names: dict[ClientLink, tuple[ClientId, ...]] = {}  # of links that were let in
        self.owed: dict[ClientId, Request] = {}
        self.away: dict[ClientId, float] = {}  # since when, of those who owe an answer
        self.refused: Counter[str] = Counter()  # messages that were no use, by sender
        self.stale: Counter[ClientId] = Counter()  # answers that were not due: too late, or sent twice
        self.stop: Callable[[], None] = lambda: None  # ends the network below
        self.over: RunFinished | None = None

    # ---- the three verbs ----------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        with self.news:
            self.owed[request.client] = request
            link = self.links.get(request.client)
            if link is None:
                self.away[request.client] = time.monotonic()
        if link is not None:
            link.push(OutgoingMessage.of(request))

    def receive(self, timeout: float) -> Reply | None:
        until = time.monotonic() + timeout
        with self.news:
            while not self.inbox:
                now = time.monotonic()
                gone = next((c for c, since in self.away.items() if now - since >= self.absence), None)
                if gone is not None:
                    del self.away[gone]
                    return Reply(self.owed.pop(gone).id, gone, error=f"{gone} has been away for {self.absence:g} s")
                if now >= until:
                    return None
                ends = [since + self.absence for since in self.away.values()]
                self.news.wait(max(0.0, min([until, *ends]) - now))
            return self.inbox.popleft()

    def close(self, why: str = "the server has stopped", over: bool = False) -> None:
        """Send everybody away, for good if the run is over; those who come back later hear it too."""
        with self.news:
            self.over = RunFinished(why) if over else None
            links = list(self.names)
        for link in links:
            if self.over is not None:
                link.push(OutgoingMessage.of(self.over))
            link.close()
        stop, self.stop = self.stop, lambda: None
        stop()

    # ---- what the network tells ---------------------------------------------------------------------------------

    def limit_of(self, link: ClientLink) -> int:
        """How large a message may be: small from those who were not let in."""
        return self.limit if link in self.names else UNADMITTED_LIMIT

    def heard(self, link: ClientLink, data: memoryview | bytearray | bytes) -> None:
        """A whole message came. Whatever it is, nothing but an answer that is due goes further."""
        try:
            self._understand(link, deserialize(data, HEADER_LIMIT if link in self.names else UNADMITTED_LIMIT))
        except WireError as error:
            self.rubbish(link, str(error))

    def rubbish(self, link: ClientLink, why: str, final: bool = False) -> None:
        """Count it by sender; too much of it, or any from somebody who was not let in, ends the link."""
        names = self.names.get(link)
        sender = names[0] if names else link.peer
        with self.news:
            if len(self.refused) < 10_000 or sender in self.refused:
                self.refused[sender] += 1
        if final or not names or self.refused[sender] % MAX_INVALID_MESSAGES == 0:
            link.push(OutgoingMessage.of(Rejection(why)))
            link.close()

    def broke(self, link: ClientLink) -> None:
        with self.news:
            for client in self.names.pop(link, ()):
                if self.links.get(client) is link:
                    del self.links[client]
                    if client in self.owed:
                        self.away[client] = time.monotonic()
            self.news.notify_all()

    def wait_for(self, count: int, told: Callable[[Sequence[ClientId]], None], every: float = 5.0) -> None:
        """Until so many clients are connected; `told` hears now and then who is there."""
        while True:
            with self.news:
                here = sorted(self.links)
                if len(here) >= count:
                    return
            told(here)
            with self.news:
                self.news.wait_for(lambda: len(self.links) >= count, every)

    def present(self) -> dict[str, list[ClientId]]:
        """Who is connected, and who owes an answer."""
        with self.news:
            return {"connected": sorted(self.links), "asked": sorted(self.owed), "away": sorted(self.away)}

    # ---- inside -------------------------------------------------------------------------------------------------

    def _understand(self, link: ClientLink, value: Any) -> None:
        match value:
            case JoinRequest() if link not in self.names:
                self._greet(link, value)
            case ClientReady() if link in self.names:
                self._begin(link, value)
            case Reply() if link in self.names:
                self._took(link, value)
            case _:
                raise WireError(f"a {type(value).__name__} is not expected here.")

    def _greet(self, link: ClientLink, hello: JoinRequest) -> None:
        if self.over is not None:
            link.push(OutgoingMessage.of(self.over))
            return
        why = self.door.refusal(hello, link.certified)
        if why is not None:
            self.rubbish(link, why)
            return
        with self.news:
            self.names[link] = hello.clients
        link.push(OutgoingMessage.of(self.door.welcome))

    def _begin(self, link: ClientLink, ready: ClientReady) -> None:
        wanted = self.door.print_of(self.names[link][0])
        if ready.fingerprint != wanted:
            why = "your model or tokenizer is not the server's, although it has the same name; use the same files and versions"
            prints = f"fingerprint {ready.fingerprint[:12]}, the server's {wanted[:12]}"
            self.rubbish(link, f"{why} ({prints}).", final=True)
            return
        self.door.settle(self.names[link])
        with self.news:
            clients = self.names[link]
            replaced = {self.links[c] for c in clients if c in self.links} - {link}
            for client in clients:
                self.links[client] = link
                self.away.pop(client, None)
            due = [self.owed[c] for c in clients if c in self.owed]
            self.news.notify_all()
        for old in replaced:  # the same client by a newer link; the old one is dead and does not know it yet
            old.close()
        for request in due:
            link.push(OutgoingMessage.of(request))

    def _took(self, link: ClientLink, reply: Reply) -> None:
        with self.news:
            due = self.owed.get(reply.client) if reply.client in self.names[link] else None
            if due is not None and due.id == reply.id:
                del self.owed[reply.client]
                self.away.pop(reply.client, None)
                self.inbox.append(reply)
                self.news.notify_all()
                return
            if reply.client in self.names[link]:
                self.stale[reply.client] += 1
                return
        raise WireError("a client may answer only for itself.")


def describe_storage_error(error: OSError) -> str:
    """For a client whose message the server could not take in."""
    needs = REMEDIES.get(error.errno or 0)
    return f"the server cannot keep your message ({error.strerror or error}){f'; there it needs {needs}' if needs else ''}."
