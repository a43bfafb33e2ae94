"""The metrics of a run: one row for each value, in memory and in metrics.jsonl."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.atomic_files import open_in_place
from motet.core.errors import RunError
from motet.transport.json_files import parse_json
from motet.transport.private_files import create_private_folder
from motet.transport.traffic import Traffic

Row = dict[str, Any]
INITIAL_SPLIT = "initial"  # the global test set before the first round
# Rows with other splits are an algorithm's notes.
EVALUATION_SPLITS = ("global", "test", "common", "dev", INITIAL_SPLIT)
_NUMERIC_SPLITS = (*EVALUATION_SPLITS, "backdoor", "distillation", "privacy")  # other notes may have any values
MAX_INTEGER = 2**63  # a larger one is no float, so that it could be neither drawn nor averaged
_STAMP = ("seconds", "bytes", "bytes_up", "network_seconds")


def is_client_row(row: Row) -> bool:
    """Return True if the row belongs to one client, and not to the server or a mean over clients."""
    return row["who"] not in ("server", "clients")


class MetricsLog:
    """Rows in memory and, with a folder, appended to metrics.jsonl."""

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / "metrics.jsonl" if folder else None
        self.rows: list[Row] = []
        self._start = time.perf_counter()
        self._seconds_before = 0.0  # of the run before it was resumed

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._start

    def resume(self, size: int, seconds: float) -> None:
        """Go back to a checkpoint: drop the rows after the first `size` bytes of the file."""
        self._seconds_before = seconds
        if self.path is not None and self.path.exists():
            with open_in_place(self.path, "r+") as file:
                file.truncate(size)
            self.rows = _read_rows(self.path)

    def add(self, round: int, who: str, split: str, values: Mapping[str, Any], traffic: Traffic) -> None:
        """Add the metrics of a split, or an algorithm's notes on a round (split "note"), which may have any values."""
        stamp = {
            "seconds": _round_to_milliseconds(self.seconds),
            "bytes": traffic.payload_up + traffic.payload_down,
            "bytes_up": traffic.payload_up,
            "network_seconds": _round_to_milliseconds(traffic.network_seconds),
        }
        rows = [{"round": round, "who": who, "split": split, "name": n, "value": v, **stamp} for n, v in values.items()]
        self.rows += rows
        if self.path is not None and rows:
            create_private_folder(self.path.parent)
            with open_in_place(self.path, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

    def size(self) -> int:
        """Return the size of metrics.jsonl in bytes."""
        return self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def has_scores(self, round: int, split: str) -> bool:
        """Return True if the round has been evaluated on a split."""
        return any(r["round"] == round and r["split"] == split and r["who"] == "server" for r in self.rows)

    def curve(self, name: str, split: str = "global", who: str = "server") -> list[tuple[int, float]]:
        """Return a metric after each round in which it was evaluated: (round, value)."""
        return [(row["round"], row["value"]) for row in self._select(name, split, who)]

    def traffic_curve(self, name: str, split: str = "global", who: str = "server") -> list[tuple[int, float]]:
        """Return a metric against the bytes of tensors sent so far, in both directions: (bytes, value)."""
        return [(row["bytes"], row["value"]) for row in self._select(name, split, who)]

    def _select(self, name: str, split: str, who: str) -> list[Row]:
        return [r for r in self.rows if r["name"] == name and r["split"] == split and r["who"] == who]


def read_metrics(folder: Path) -> MetricsLog:
    """Read the metrics of a run."""
    log = MetricsLog(folder)
    if log.path is not None and log.path.exists():
        log.rows = _read_rows(log.path)
    return log


def _read_rows(path: Path) -> list[Row]:
    rows = [parse_json(line, path) for line in path.read_bytes().splitlines()]
    if damaged := next((number for number, row in enumerate(rows, 1) if not is_row(row)), None):
        raise RunError(
            f"'{path}' is damaged: line {damaged} is not a metric. Restore it, or run again in another folder."
        )
    return rows


def is_row(value: Any) -> bool:
    """Return True if a value is a row of metrics.jsonl. There may be millions, so this is not a general check."""
    return (
        isinstance(value, dict)
        and all(type(value.get(name)) is str for name in ("who", "split", "name"))
        and _is_number(value.get("round"), (int,))
        and "value" in value
        and (_is_number(value["value"]) or value["split"] not in _NUMERIC_SPLITS)
        and all(_is_number(value.get(name)) for name in _STAMP)
    )


def _is_number(value: Any, kinds: tuple[type, ...] = (float, int)) -> bool:
    return type(value) in kinds and (type(value) is float or abs(value) < MAX_INTEGER)


def _round_to_milliseconds(seconds: float) -> float:
    return round(seconds, 3)
