"""Links that do not take part yet, or no more. They have a deadline, and strangers cannot use up the places of others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

JOIN_TIMEOUT = 30.0  # seconds until a new link must be admitted, and a link that is closed must have sent everything
READY_TIMEOUT = 900.0  # seconds until an admitted client must have built its model; it may download it first
MAX_STRANGERS = 128  # links that are not admitted yet


class PendingLink(Protocol):
    @property
    def peer(self) -> str: ...
    def abort(self) -> None: ...


@dataclass
class _Entry:
    deadline: float
    is_admitted: bool = False


class PendingLinks:
    """The links of a server that are not ready. A single thread ends those that exceed their deadline.

    If there are too many strangers, the oldest link of the host with the most links is ended. A client sends its join
    request at once, so it is admitted before a flood of silent links reaches it. A link that is being closed counts as
    a stranger's: it stays open as long as its client does not read what was sent.
    """

    def __init__(self) -> None:
        self.entries: dict[PendingLink, _Entry] = {}  # oldest first
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None

    def add(self, link: PendingLink) -> None:
        with self.changed:
            if link not in self.entries or self.entries[link].is_admitted:
                self.entries[link] = _Entry(time.monotonic() + JOIN_TIMEOUT)
            strangers = [other for other, entry in self.entries.items() if not entry.is_admitted]
            evicted = _find_oldest_of_largest_host(strangers) if len(strangers) > MAX_STRANGERS else None
            if evicted is not None:
                del self.entries[evicted]
            if self.thread is None:
                self.thread = threading.Thread(target=self._abort_expired, daemon=True)
                self.thread.start()
            self.changed.notify()
        if evicted is not None:
            evicted.abort()

    def set_admitted(self, link: PendingLink) -> None:
        """Give an admitted client the time to build its model."""
        with self.changed:
            if link in self.entries:
                self.entries[link] = _Entry(time.monotonic() + READY_TIMEOUT, is_admitted=True)
                self.changed.notify()  # the new time may be over earlier

    def remove(self, link: PendingLink) -> None:
        with self.changed:
            self.entries.pop(link, None)
            self.changed.notify()

    def _abort_expired(self) -> None:
        """End links when their time is over. The thread ends when there are none left."""
        while True:
            with self.changed:
                if not self.entries:
                    self.thread = None
                    return
                now = time.monotonic()
                expired = [link for link, entry in self.entries.items() if entry.deadline <= now]
                for link in expired:
                    del self.entries[link]
                if not expired:
                    self.changed.wait(min(entry.deadline for entry in self.entries.values()) - now)
            for link in expired:
                link.abort()


def _find_oldest_of_largest_host(links: list[PendingLink]) -> PendingLink:
    hosts = [link.peer.rpartition(":")[0] for link in links]
    (largest, _), *_ = Counter(hosts).most_common(1)
    return links[hosts.index(largest)]
