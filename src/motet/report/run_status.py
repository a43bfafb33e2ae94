"""Status of a served run, as a file and for the status page. It contains no private data."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from motet.core.errors import ConfigError, RunError
from motet.missing_paths import describe_missing
from motet.report.number_text import format_duration
from motet.report.progress import format_megabytes
from motet.report.run_callback import RunCallback
from motet.transport.folder_lock import find_lock_owner
from motet.transport.json_files import read_json
from motet.transport.json_shapes import find_mismatch
from motet.transport.private_files import write_atomically
from motet.transport.traffic import Traffic

REFRESH_SECONDS = 2.0


class ClientTraffic(TypedDict):
    up: int
    down: int


class StatusRecord(TypedDict):
    """status.json, and what a status page sends: what `RunStatus.snapshot` returns."""

    state: str
    run: NotRequired[str]
    rounds: NotRequired[int]
    done: NotRequired[int]
    round: NotRequired[int]
    cohort: NotRequired[int]
    answered: NotRequired[int]
    scores: NotRequired[dict[str, float]]
    bytes_up: NotRequired[int]
    bytes_down: NotRequired[int]
    rounds_timed: NotRequired[int]
    round_seconds: NotRequired[float]
    connected: NotRequired[list[str]]
    away: NotRequired[list[str]]
    waited_for: NotRequired[dict[str, float]]
    refused: NotRequired[dict[str, int]]
    traffic: NotRequired[dict[str, ClientTraffic]]
    failures: NotRequired[dict[str, int]]
    certificate_expires: NotRequired[float]


class RunStatus(RunCallback):
    """A callback that keeps the current status of a run, writes it to `file` and forwards every event.

    `client_status` returns which clients are connected, which are missing and how long the server has waited for them.
    """

    def __init__(
        self, callback: RunCallback, client_status: Callable[[], Mapping[str, Any]], file: Path | None = None
    ) -> None:
        self.callback, self.client_status, self.file = callback, client_status, file
        self.facts: dict[str, Any] = {"state": "waiting for clients", "rounds_timed": 0, "round_seconds": 0.0}
        self.round_began: float | None = None
        self.lock, self.file_lock, self.last_write = threading.Lock(), threading.Lock(), 0.0

    def snapshot(self) -> dict[str, Any]:
        with self.lock:
            return {**self.facts, **self.client_status()}

    def keep_current(self, interval: float = REFRESH_SECONDS) -> Callable[[], None]:
        """Write the status again and again, because clients come and go between two events. Return what stops it."""
        stopped = threading.Event()

        def write_repeatedly() -> None:
            while not stopped.wait(interval):
                self._update()

        threading.Thread(target=write_repeatedly, daemon=True).start()
        return stopped.set

    def on_waiting(self, text: str) -> None:
        """Show what the run waits for before it begins."""
        self._update(state=text)

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        self._update(state="running", run=name, rounds=rounds, done=completed, began=time.time())
        self.callback.on_run_begin(name, rounds, completed)

    def on_round_begin(self, round: int, cohort_size: int) -> None:
        self.round_began = time.monotonic()
        self._update(round=round, cohort=cohort_size, answered=0)
        self.callback.on_round_begin(round, cohort_size)

    def on_client_done(self, answered: int, expected: int) -> None:
        self._update(answered=answered, cohort=expected, must_write=False)
        self.callback.on_client_done(answered, expected)

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        facts: dict[str, Any] = {"done": round, "bytes_up": traffic.wire_up, "bytes_down": traffic.wire_down}
        if scores:
            facts |= {"scores": dict(scores), "primary_metric": primary_metric}
        if self.round_began is not None:  # else an earlier server has run this round
            seconds = self.facts["round_seconds"] + time.monotonic() - self.round_began
            facts |= {"rounds_timed": self.facts["rounds_timed"] + 1, "round_seconds": seconds}
            self.round_began = None
        self._update(**facts)
        self.callback.on_round_end(round, scores, primary_metric, traffic)

    def on_note(self, text: str) -> None:
        self.callback.on_note(text)

    def on_run_end(self) -> None:
        with self.lock:
            is_complete = self.facts.get("done") == self.facts.get("rounds")
        self._update(state="finished" if is_complete else "stopped")
        self.callback.on_run_end()

    def _update(self, *, must_write: bool = True, **facts: Any) -> None:
        with self.lock:
            self.facts.update(facts)
        if self.file is not None and (must_write or time.monotonic() - self.last_write > 1):
            self.last_write = time.monotonic()
            with self.file_lock:
                write_atomically(self.file, json.dumps({**self.snapshot(), "at": time.time()}, indent=2).encode())


def format_status(status: Mapping[str, Any]) -> str:
    """Format a status for the terminal, one fact per line."""
    lines = [f"{status.get('run', 'run')}: {status.get('state', 'unknown')}"]
    if "rounds" in status:
        lines.append(f"rounds      {status.get('done', 0)} of {status['rounds']} done{_describe_time_left(status)}")
    if status.get("cohort"):
        lines.append(f"this round  {status.get('answered', 0)} of {status['cohort']} clients answered")
    for name, key in (("connected", "connected"), ("missing", "away")):
        if status.get(key):
            lines.append(f"{name:11} {', '.join(status[key])}")
    if status.get("waited_for"):
        lines.append(f"waiting for {', '.join(f'{c} ({s:.0f} s)' for c, s in status['waited_for'].items())}")
    if status.get("scores"):
        lines.append(f"scores      {', '.join(f'{n} {v:.3f}' for n, v in status['scores'].items())}")
    if "bytes_up" in status:
        up, down = (format_megabytes(status.get(f"bytes_{direction}", 0)) for direction in ("up", "down"))
        lines.append(f"bytes       {up} MB up, {down} MB down")
    if "certificate_expires" in status:
        lines.append(f"certificate valid until {datetime.fromtimestamp(status['certificate_expires'], UTC):%Y-%m-%d}")
    if status.get("refused"):
        lines.append(f"rejected    {', '.join(f'{c}: {n} messages' for c, n in status['refused'].items())}")
    return "\n".join(lines)


def _describe_time_left(status: Mapping[str, Any]) -> str:
    """Return how long the remaining rounds take if they are like those since the server started."""
    left = status["rounds"] - status.get("done", 0)
    if status.get("state") != "running" or not left or not status.get("rounds_timed"):
        return ""
    return f", about {format_duration(left * status['round_seconds'] / status['rounds_timed'])} left"


def read_status(source: str, token: str = "") -> dict[str, Any]:
    """Read the status of a run from the URL of its status page or from its folder."""
    if source.startswith(("http://", "https://")):
        return _fetch_status(source, token)
    path = Path(source) / "status.json"
    if not path.exists():
        if find_lock_owner(path.parent) is not None:
            return {"state": "starting: the data and the model are being read"}
        problem = f"'{source}' is not a run: it has no status.json."
        raise ConfigError(
            f"{problem if path.parent.exists() else describe_missing(source)} Pass the folder of a run, such as "
            "runs/quickstart-1, or the URL of the status page of a server."
        )
    status: dict[str, Any] = read_json(path, StatusRecord)
    if find_lock_owner(path.parent) is None:  # nobody is connected to a server that has ended
        is_over = status["state"] in ("finished", "stopped")  # else it was killed, and could not write its last status
        state = status["state"] if is_over else "stopped: the server is gone"
        status |= {"state": state, "cohort": 0, "connected": [], "away": [], "waited_for": {}}
    return status


def _fetch_status(url: str, token: str) -> dict[str, Any]:
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url.rstrip("/") + "/status.json", headers=headers), timeout=10) as response:
            status: dict[str, Any] = json.loads(response.read(2**20))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.reason if type(error) is URLError else error  # its text is <urlopen error …>
        text = getattr(reason, "strerror", None) or reason
        raise RunError(
            f"{url} returned no status: {text}. Check the address and the token in MOTET_STATUS_TOKEN."
        ) from None
    if problem := find_mismatch(status, StatusRecord):
        raise RunError(f"{url} returned no status: {problem}. Check the address.")
    return status
