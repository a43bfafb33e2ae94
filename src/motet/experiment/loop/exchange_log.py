"""The results of exchanges in the current round, so that a restarted server repeats only the last one."""

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
    """Runs exchanges, and writes the result of each when the next one starts. The last of a round is in its checkpoint.

    Only for remote clients, which keep their state themselves. In a simulation client states change with the round, and
    an interrupted round is run again from its start.
    """

    def __init__(self, folder: Path, mailbox: Mailbox) -> None:
        self.folder, self.mailbox = folder, mailbox
        self.round = self.number = -1
        self._write_pending: Callable[[], None] = lambda: None

    def run_exchange(self, exchange: Exchange) -> Any:
        """Return the logged result of an exchange, or run it."""
        self._write_pending()
        if self.mailbox.round != self.round:
            self.round, self.number = self.mailbox.round, 0
            self._delete_other_rounds()
        self.number += 1
        path = self.folder / f"{self.round}-{self.number}"
        logged = _read(path, exchange.address)
        if logged is not None:
            result, traffic = logged
            self.mailbox.continue_from(traffic)
            self._write_pending = lambda: None
            return result
        result = self.mailbox.run_exchange(exchange)
        traffic = replace(self.mailbox.traffic)
        self._write_pending = lambda: self._write(path, (exchange.address, result, traffic))
        return result

    def _write(self, path: Path, entry: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pieces_atomically(path, iter_serialized(entry))

    def _delete_other_rounds(self) -> None:
        """Delete earlier rounds, which are in the checkpoint, and later ones, which the run was reset to before."""
        if self.folder.exists():
            for path in self.folder.iterdir():
                if not path.name.startswith(f"{self.round}-"):
                    path.unlink()


def _read(path: Path, address: str) -> tuple[Any, Traffic] | None:
    """Read a result and the traffic after it; None if the file is missing, damaged or of another method."""
    if not path.exists():
        return None
    try:
        logged_address, result, traffic = load_value(path)
    except WireError:
        return None
    return (result, traffic) if logged_address == address and isinstance(traffic, Traffic) else None
