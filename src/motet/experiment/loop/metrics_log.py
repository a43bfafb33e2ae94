"""What a run writes down: one row an event in metrics.jsonl, and a summary at the end."""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from motet.transport.mailbox import Traffic
from motet.transport.spill_store import write_atomically

Row = dict[str, Any]
EXAMPLE_SCORES = "items.npz"
GLOBAL_MODEL_SCORES = "items-common.npz"  # the common model on the clients' own test sets
BEST_DEV_SCORES = "items-dev.npz"  # after the round that was best on the development set


def is_client_row(row: Row) -> bool:
    """And neither the server's nor a mean over the clients."""
    return row["who"] not in ("server", "clients")


class MetricsLog:
    """Rows in memory and, if there is a folder, appended to metrics.jsonl as they come."""

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / "metrics.jsonl" if folder else None
        self.rows: list[Row] = []
        self.began = time.perf_counter()
        self.before = 0.0  # seconds of earlier sittings

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.began

    def resume(self, size: int, seconds: float) -> None:
        """Forget rows that were written after the checkpoint."""
        self.before = seconds
        if self.path is not None and self.path.exists():
            with self.path.open("r+b") as file:
                file.truncate(size)
            self.rows = [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def add(self, round: int, who: str, split: str, values: Mapping[str, Any], traffic: Traffic) -> None:
        """Metrics of a split, or an algorithm's own notes of a round (split "note"), whose values may be anything."""
        moved = {"bytes": traffic.payload_up + traffic.payload_down, "bytes_up": traffic.payload_up}
        stamp = {"seconds": round_to(self.seconds), **moved, "network_seconds": round_to(traffic.network_seconds)}
        new = [{"round": round, "who": who, "split": split, "name": n, "value": v, **stamp} for n, v in values.items()]
        self.rows += new
        if self.path is not None and new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in new)

    def size(self) -> int:
        return self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def looked_at(self, round: int) -> bool:
        return any(r["round"] == round and r["split"] == "global" and r["who"] == "server" for r in self.rows)

    def curve(self, name: str, split: str = "global", who: str = "server") -> list[tuple[int, float]]:
        """The value of a metric after each round at which it was looked at."""
        kept = [r for r in self.rows if r["name"] == name and r["split"] == split and r["who"] == who]
        return [(r["round"], r["value"]) for r in kept]

    def cost(self, name: str, split: str = "global", who: str = "server") -> list[tuple[int, float]]:
        """The value of a metric against the bytes of tensors moved till then, both ways."""
        kept = [r for r in self.rows if r["name"] == name and r["split"] == split and r["who"] == who]
        return [(r["bytes"], r["value"]) for r in kept]


def cost_to_reach(
    record: MetricsLog, primary_metric: str, thresholds: Sequence[float]
) -> dict[str, dict[str, Row | None]]:
    """What it took to reach each value, on the global test set and in the clients' own tests; None where it was not reached.

    Bytes are those of tensors since the beginning, up to the first look at which the value was there.
    """
    found: dict[str, dict[str, Row | None]] = {}
    for split, who, name in (("global", "server", "global"), ("test", "clients", "local")):
        seen = [r for r in record.rows if (r["split"], r["who"], r["name"]) == (split, who, primary_metric)]
        first = {f"{t:g}": next((r for r in seen if r["value"] >= t), None) for t in thresholds}
        found[name] = {t: None if row is None else _cost(row) for t, row in first.items()}
    return found


def _cost(row: Row) -> Row:
    down, seconds = row["bytes"] - row["bytes_up"], row["network_seconds"]
    return {"round": row["round"], "payload_up": row["bytes_up"], "payload_down": down, "network_seconds": seconds}


def read_metrics(folder: Path) -> MetricsLog:
    """The rows a run has written."""
    record = MetricsLog(folder)
    if record.path is not None and record.path.exists():
        record.rows = [json.loads(line) for line in record.path.read_text("utf-8").splitlines()]
    return record


def round_to(value: float, digits: int = 3) -> float:
    return round(value, digits)


def mean_metrics(reports: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric that all have, every client counting alike."""
    listed = list(reports)
    common = [name for name in (listed[0] if listed else ()) if all(name in r for r in listed)]
    return {name: sum(r[name] for r in listed) / len(listed) for name in common}


def score_spread(values: Sequence[float]) -> dict[str, float]:
    """How clients fare: the mean, the deviation, and the mean of the worst tenth (at least one client)."""
    if not values:
        return {}
    ordered = sorted(values)
    mean = sum(ordered) / len(ordered)
    tenth = ordered[: max(1, math.ceil(len(ordered) / 10))]
    deviation = math.sqrt(sum((v - mean) ** 2 for v in ordered) / len(ordered))
    return {"mean": mean, "std": deviation, "worst_decile": sum(tenth) / len(tenth)}


def package_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("motet", "torch", "transformers", "tokenizers", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a source tree
            continue
    return found


def describe_machine(device: Any) -> dict[str, str]:
    """What it ran on, in words; names of machines and people are nobody's business."""
    cores = f"{os.cpu_count()} cores"
    found = {"system": f"{platform.system()} {platform.machine()}", "processor": _processor(), "cores": cores}
    if device.type == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name(device)
    return {name: said for name, said in found.items() if said}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def write_example_scores(folder: Path, items: Mapping[str, np.ndarray], name: str = EXAMPLE_SCORES) -> None:
    """items.npz: of every test item its score and what is tallied in it; `scores` end to end, `sizes` and `owners` ("" is the
    global test set), `tallies` end to end and how many an item of each owner has."""
    if not items:
        return
    buffer = io.BytesIO()
    names = list(items)
    sizes = np.array([len(items[n]) for n in names], np.int64)
    np.savez_compressed(
        buffer,
        scores=np.concatenate([items[n][:, 0] for n in names]),
        sizes=sizes,
        owners=np.array(names),
        tallies=np.concatenate([items[n][:, 1:].ravel() for n in names]),
        widths=np.array([items[n].shape[1] - 1 for n in names], np.int64),
    )
    write_atomically(folder / name, buffer.getvalue())


def read_example_scores(folder: Path, name: str = EXAMPLE_SCORES) -> dict[str, np.ndarray]:
    """A row for every item of every owner: its score, then its tallies, which runs of long ago have none of."""
    path = folder / name
    if not path.exists():
        return {}
    with np.load(path) as found:
        sizes = found["sizes"]
        widths = found["widths"] if "widths" in found else np.zeros_like(sizes)
        tallies = np.split(found["tallies"] if "tallies" in found else np.zeros(0), np.cumsum(sizes * widths)[:-1])
        scores = np.split(found["scores"], np.cumsum(sizes)[:-1])
        parts = zip(scores, tallies, widths, strict=True)
        rows = [
            np.concatenate([score[:, None], tally.reshape(len(score), width)], axis=1) for score, tally, width in parts
        ]
        return dict(zip(found["owners"].tolist(), rows, strict=True))


def traffic_to_dict(traffic: Traffic) -> dict[str, int]:
    return {name: count for name, count in asdict(traffic).items() if name not in ("requests", "network_seconds")}


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
