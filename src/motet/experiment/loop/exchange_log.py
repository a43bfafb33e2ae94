"""Answers of the round under way, kept so that a server that dies asks again only what was not answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import WireError
from motet.core.script import Exchange
from motet.transport.mailbox import Mailbox, Traffic
from motet.transport.spill_store import write_pieces_atomically
from motet.wire import iter_serialized
from motet.wire.value_files import load_value


class ExchangeLog:
    """An answer is written down when the script goes on to another exchange; the last of a round is in its checkpoint.

    Only for clients who keep their own memories: a simulation's are settled with the round, and a round is played whole.
    """

    def __init__(self, folder: Path, mailbox: Mailbox) -> None:
        self.folder, self.mailbox = folder, mailbox
        self.round = self.number = -1
        self.unwritten: Callable[[], None] = lambda: None

    def run_exchange(self, exchange: Exchange) -> Any:
        self.unwritten()
        if self.mailbox.round != self.round:
            self.round, self.number = self.mailbox.round, 0
            self._forget()
        self.number += 1
        path = self.folder / f"{self.round}-{self.number}"
        found = _read(path, exchange.address)
        if found is not None:
            answer, self.mailbox.traffic = found
            self.unwritten = lambda: None
            return answer
        answer = self.mailbox.run_exchange(exchange)
        traffic = replace(self.mailbox.traffic)
        self.unwritten = lambda: self._write(path, (exchange.address, answer, traffic))
        return answer

    def _write(self, path: Path, entry: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pieces_atomically(path, iter_serialized(entry))

    def _forget(self) -> None:
        """Answers of other rounds are in the checkpoint, or belong to a future that did not happen."""
        if self.folder.exists():
            for path in self.folder.iterdir():
                if not path.name.startswith(f"{self.round}-"):
                    path.unlink()


def _read(path: Path, address: str) -> tuple[Any, Traffic] | None:
    if not path.exists():
        return None
    try:
        asked, answer, traffic = load_value(path)
    except WireError:
        return None
    return (answer, traffic) if asked == address and isinstance(traffic, Traffic) else None
