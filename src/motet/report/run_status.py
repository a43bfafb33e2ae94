"""Where a served run stands: for a person who looks, in a file and on a small page. Nothing private is in it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError
from motet.report.progress import RunCallback, megabytes
from motet.transport.mailbox import Traffic
from motet.transport.spill_store import write_atomically


class Status:
    """A watch that remembers what it was told, and tells another. `clients` says who is there and who is waited for."""

    def __init__(self, watch: RunCallback, clients: Callable[[], Mapping[str, Any]], file: Path | None = None) -> None:
        self.watch, self.clients, self.file = watch, clients, file
        self.facts: dict[str, Any] = {"state": "waiting for clients"}
        self.lock, self.written = threading.Lock(), 0.0

    def now(self) -> dict[str, Any]:
        with self.lock:
            return {**self.facts, **self.clients()}

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._told(True, state="running", run=name, rounds=rounds, done=done, began=time.time())
        self.watch.begin(name, rounds, done)

    def cohort(self, round: int, clients: int) -> None:
        self._told(True, round=round, cohort=clients, answered=0)
        self.watch.cohort(round, clients)

    def client(self, seen: int, asked: int) -> None:
        self._told(False, answered=seen, cohort=asked)
        self.watch.client(seen, asked)

    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None:
        told = {"done": number, "bytes_up": traffic.wire_up, "bytes_down": traffic.wire_down}
        self._told(True, **told, **({"scores": dict(scores), "headline": headline} if scores else {}))
        self.watch.round(number, scores, headline, traffic)

    def note(self, text: str) -> None:
        self.watch.note(text)

    def end(self) -> None:
        with self.lock:
            over = self.facts.get("done") == self.facts.get("rounds")
        self._told(True, state="over" if over else "stopped")
        self.watch.end()

    def _told(self, at_once: bool, **facts: Any) -> None:
        with self.lock:
            self.facts.update(facts)
        if self.file is not None and (at_once or time.monotonic() - self.written > 1):
            self.written = time.monotonic()
            write_atomically(self.file, json.dumps({**self.now(), "at": time.time()}, indent=2).encode())


def described(status: Mapping[str, Any]) -> str:
    """The same for a terminal."""
    lines = [f"{status.get('run', 'run')}: {status.get('state', 'unknown')}"]
    if "rounds" in status:
        lines.append(f"rounds      {status.get('done', 0)} of {status['rounds']} done")
    if status.get("cohort"):
        lines.append(f"this round  {status.get('answered', 0)} of {status['cohort']} clients have answered")
    for name in ("connected", "away"):
        if status.get(name):
            lines.append(f"{name:11} {', '.join(status[name])}")
    if status.get("waited_for"):
        lines.append(f"waited for  {', '.join(f'{c} ({s:.0f} s)' for c, s in status['waited_for'].items())}")
    if status.get("scores"):
        lines.append(f"scores      {', '.join(f'{n} {v:.3f}' for n, v in status['scores'].items())}")
    if "bytes_up" in status:
        lines.append(f"bytes       {megabytes(status['bytes_up'])} MB up, {megabytes(status['bytes_down'])} MB down")
    if status.get("refused"):
        lines.append(f"refused     {', '.join(f'{c}: {n} messages' for c, n in status['refused'].items())}")
    return "\n".join(lines)


def read_status(where: str, token: str = "") -> dict[str, Any]:
    """From a server's page (a URL), or from a run's folder."""
    if where.startswith(("http://", "https://")):
        from urllib.error import URLError
        from urllib.request import Request, urlopen

        request = Request(
            where.rstrip("/") + "/status.json", headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        try:
            with urlopen(request, timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read(2**20))
                return found
        except (URLError, OSError, ValueError) as error:
            raise RunError(
                f"{where} does not say how the run is ({error}); is the address right, and the token?"
            ) from None
    path = Path(where) / "status.json"
    if not path.exists():
        raise ConfigError(
            f"'{where}' has no status.json; give the folder of a run that is served, or the URL of its page."
        )
    kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return kept
