"""The results of exchanges in the current round, so that a restarted server repeats only the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from motet.core.errors import RunError, WireError
from motet.core.script import ClientId, Exchange, Script, Transaction
from motet.transport.mailbox import ClientFailure, Mailbox, Observation
from motet.transport.private_files import create_private_folder, write_pieces_atomically
from motet.transport.traffic import Traffic
from motet.wire import iter_serialized
from motet.wire.value_files import load_value

MAX_ATTEMPTS = 5  # of a transaction whose clients were restarted
RunSteps = Callable[[Script[Any]], Any]


class LoggedExchange(NamedTuple):
    """The result of an exchange or of a transaction, the traffic after it, and the clients that failed in it.

    `replied` is what all exchanges of the round so far showed about their clients.
    """

    result: Any
    traffic: Traffic
    failures: list[ClientFailure]
    replied: dict[ClientId, Observation]


class ExchangeLog:
    """Runs exchanges, and writes the result of each when the next one starts. The last of a round is in its checkpoint.

    A transaction has one result, which is written at once. Its exchanges are not logged: after an interruption a secure
    sum must begin again with new keys, because its clients never repeat a stage.

    Only for remote clients, which keep their state themselves. In a simulation client states change with the round, and
    an interrupted round is run again from its start.
    """

    def __init__(self, folder: Path, mailbox: Mailbox) -> None:
        self.folder, self.mailbox = folder, mailbox
        self.round = self.number = -1
        self._write_pending: Callable[[], None] = lambda: None

    def run_exchange(self, exchange: Exchange) -> Any:
        """Return the logged result of an exchange, or run it."""
        path, logged = self._begin_entry(exchange.address)
        if logged is not None:
            return logged.result
        failures_before = len(self.mailbox.failures)
        entry = self._make_entry(self.mailbox.run_exchange(exchange), failures_before)
        self._write_pending = lambda: self._write(path, exchange.address, entry)
        return entry.result

    def run_transaction(self, transaction: Transaction, run_steps: RunSteps) -> Any:
        """Return the logged result of a transaction, or run it."""
        path, logged = self._begin_entry(transaction.address)
        if logged is not None:
            return logged.result
        failures_before = len(self.mailbox.failures)
        entry = self._make_entry(run_with_restarts(transaction, self.mailbox, run_steps), failures_before)
        self._write(path, transaction.address, entry)
        return entry.result

    def _make_entry(self, result: Any, failures_before: int) -> LoggedExchange:
        mailbox = self.mailbox
        return LoggedExchange(
            result, replace(mailbox.traffic), mailbox.failures[failures_before:], dict(mailbox.replied)
        )

    def _begin_entry(self, address: str) -> tuple[Path, LoggedExchange | None]:
        """Return the file of the next entry, and what it holds. The mailbox goes on as it was after a logged entry."""
        self._write_pending()
        self._write_pending = lambda: None
        if self.mailbox.round != self.round:
            self.round, self.number = self.mailbox.round, 0
            self._delete_other_rounds()
        self.number += 1
        path = self.folder / f"{self.round}-{self.number}"
        logged = _read(path, address)
        if logged is not None:
            self.mailbox.continue_from(logged.traffic)
            self.mailbox.failures += logged.failures
            self.mailbox.replied |= logged.replied
        return path, logged

    def _write(self, path: Path, address: str, entry: LoggedExchange) -> None:
        create_private_folder(self.folder)
        write_pieces_atomically(path, iter_serialized((address, *entry)))

    def _delete_other_rounds(self) -> None:
        """Delete earlier rounds, which are in the checkpoint, and later ones, which the run was reset to before."""
        if self.folder.exists():
            for path in self.folder.iterdir():
                if not path.name.startswith(f"{self.round}-"):
                    path.unlink()


def run_with_restarts(transaction: Transaction, mailbox: Mailbox, run_steps: RunSteps) -> Any:
    """Run a transaction. If it fails because a client was restarted and lost its session, begin it again.

    The requests of the new attempt have the IDs of the old one, so that clients go back to their state before it.
    """
    start, attempts = replace(mailbox.traffic), 1
    while True:
        lost_before, failures_before = mailbox.lost_sessions, len(mailbox.failures)
        try:
            return run_steps(transaction.begin())
        except RunError:
            if mailbox.lost_sessions == lost_before or attempts == MAX_ATTEMPTS:
                raise
        del mailbox.failures[failures_before:]
        mailbox.continue_from(start)
        attempts += 1


def _read(path: Path, address: str) -> LoggedExchange | None:
    """Read an entry; None if the file is missing, damaged, or of another method or version."""
    if not path.exists():
        return None
    try:
        logged_address, result, traffic, failures, replied = load_value(path)
        observations = {client: Observation(*seen) for client, seen in replied.items()}
        entry = LoggedExchange(result, traffic, [ClientFailure(*failure) for failure in failures], observations)
    except (WireError, TypeError, ValueError, AttributeError):
        return None
    return entry if logged_address == address and isinstance(traffic, Traffic) else None
