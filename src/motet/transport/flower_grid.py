"""The server's side of Flower: a thread that sends messages to SuperNodes and hands their replies to `Connections`.

A SuperNode speaks only when it is asked. The server sends a visit to a node whenever it has a message for it, or waits
for one from it; at most one at a time. A visit 0 opens a link. If a visit fails, the server opens a new link, and
`Connections` repeats what is unanswered.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from motet.core.errors import first_line
from motet.transport.connections import Connections
from motet.transport.display_text import clean_text
from motet.transport.flower_visit import VisitReply
from motet.transport.framing import OutgoingMessage

TICK = 0.1  # seconds between two looks at the SuperLink
TICKS_PER_SEARCH = 20  # for new nodes
RETRY_PAUSE = 5.0  # seconds until a node that failed is asked again
GOODBYE_TIMEOUT = 30.0  # seconds in which the nodes must have received the last message


class Post(Protocol):
    """Carries visits to nodes. Any error means that the SuperLink cannot be used now."""

    def find_nodes(self) -> set[int]: ...
    def send(self, node: int, link: str, number: int, messages: Sequence[bytes]) -> str:
        """Send a visit and return its ID."""

    def receive(self, message_ids: Sequence[str]) -> Sequence[VisitReply]:
        """Return the replies that have arrived to these visits, each once."""


@dataclass(eq=False)
class FlowerClientLink:
    """The server's end of a link to a SuperNode."""

    node: int
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    certified_name: str | None = None
    outbox: list[bytes] = field(default_factory=list)
    visits: int = 0
    awaited: int = 1  # messages that the node owes: first its join request, then one for each message to it
    is_closed: bool = False
    changed_at: float = 0.0  # when the last message was added
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def peer(self) -> str:
        return f"SuperNode {self.node}"

    def send(self, message: OutgoingMessage) -> None:
        data = b"".join(message.parts)
        with self.lock:
            self.outbox.append(data)
            self.awaited += 1
            self.changed_at = time.monotonic()

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.close()

    def next_visit(self, now: float, tick: float = TICK) -> list[bytes] | None:
        """Return the messages of the next visit; None if there is no reason for one yet.

        Messages leave together once none was added for a moment, because each visit starts a process on the node.
        """
        with self.lock:
            is_growing = bool(self.outbox) and now - self.changed_at < tick and not self.is_closed
            if is_growing or not (self.outbox or (self.awaited > 0 and not self.is_closed)):
                return None
            messages, self.outbox = self.outbox, []
            return messages


class FlowerNodes:
    """All SuperNodes of a Flower run. Only one thread uses `post`."""

    def __init__(self, connections: Connections, post: Post, log: Callable[[str], None], tick: float = TICK) -> None:
        self.connections, self.post, self.log, self.tick = connections, post, log, tick
        self.links: dict[int, FlowerClientLink] = {}  # by node
        self.in_flight: dict[str, FlowerClientLink] = {}  # by message ID
        self.retry_at: dict[int, float] = {}
        self.complaints: dict[int, str] = {}  # what each node said last, to log it once
        self.find_nodes_at = 0.0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Deliver the last messages and stop."""
        self.stopping.set()
        self.thread.join(GOODBYE_TIMEOUT)

    def _run(self) -> None:
        deadline = float("inf")
        while time.monotonic() < deadline:
            try:
                self.step(time.monotonic())
            except Exception as error:  # Flower raises errors of its HTTP library, and others
                self.log(f"the SuperLink cannot be used ({type(error).__name__}: {first_line(error)}); trying again")
                self._drop_all()
                self.stopping.wait(RETRY_PAUSE)
            if self.stopping.is_set():
                deadline = min(deadline, time.monotonic() + GOODBYE_TIMEOUT)
                if not self.in_flight and not any(link.outbox for link in self.links.values()):
                    return
            time.sleep(self.tick)

    def step(self, now: float) -> None:
        """Open links to new nodes, send what is due, and process what has arrived."""
        if now >= self.find_nodes_at and not self.stopping.is_set():
            self._find_nodes(now)
        busy = set(self.in_flight.values())
        for link in [link for link in self.links.values() if link not in busy]:
            if self.stopping.is_set() and not link.outbox:
                continue  # nobody waits for it any more
            messages = link.next_visit(now, self.tick)
            if messages is not None:
                self._send(link, messages)
            elif link.is_closed:
                self._drop(link, now)
        if self.in_flight:
            for reply in self.post.receive(list(self.in_flight)):
                self._take_reply(self.in_flight.pop(reply.message_id), reply, now)

    def _find_nodes(self, now: float) -> None:
        self.find_nodes_at = now + TICKS_PER_SEARCH * self.tick
        nodes = self.post.find_nodes()
        for node in self.links.keys() - nodes:
            self.log(f"SuperNode {node} is gone")
            self._drop(self.links[node], now)
        for node in nodes - self.links.keys():
            if now >= self.retry_at.get(node, 0.0):
                self.links[node] = FlowerClientLink(node)
                self.connections.on_connect(self.links[node])

    def _send(self, link: FlowerClientLink, messages: list[bytes]) -> None:
        message_id = self.post.send(link.node, link.name, link.visits, messages)
        link.visits += 1
        self.in_flight[message_id] = link

    def _take_reply(self, link: FlowerClientLink, reply: VisitReply, now: float) -> None:
        if self.links.get(link.node) is not link:
            return  # dropped in the meantime
        if reply.is_lost:
            self._complain(link, reply.error, now)
            return
        for data in reply.messages:
            link.awaited = max(0, link.awaited - 1)
            limit = self.connections.limits_for(link).message_bytes
            if len(data) > limit:
                self.connections.reject(link, f"a message has {len(data)} bytes; at most {limit} are accepted.")
            else:
                self.connections.on_message(link, data)
        if reply.messages:
            self.complaints.pop(link.node, None)

    def _complain(self, link: FlowerClientLink, reason: str, now: float) -> None:
        """Log why a node did not answer, once, and ask it again later."""
        text = clean_text(reason)
        if text and self.complaints.get(link.node) != text and not self.stopping.is_set():
            self.log(f"{link.peer}: {text}")
            self.complaints[link.node] = text
        self._drop(link, now, RETRY_PAUSE if text else 0.0)

    def _drop(self, link: FlowerClientLink, now: float, pause: float = RETRY_PAUSE) -> None:
        self.links.pop(link.node, None)
        self.retry_at[link.node] = now + pause
        link.close()
        self.connections.on_disconnect(link)

    def _drop_all(self) -> None:
        self.in_flight.clear()
        for link in list(self.links.values()):
            self._drop(link, time.monotonic())


def serve_flower(connections: Connections, post: Post, log: Callable[[str], None], tick: float = TICK) -> None:
    """Reach the clients of `connections` through the SuperNodes of a Flower run."""
    nodes = FlowerNodes(connections, post, log, tick)
    connections.stop_listening = nodes.stop
    nodes.start()
