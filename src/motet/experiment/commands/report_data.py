"""What a run tells of itself, as plain values: for the page that shows runs, and for comparing two of them."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.experiment.commands.run_folder import load_config, load_summary
from motet.experiment.loop.metrics_log import Row, is_client_row, read_metrics

MOST_POINTS = 400  # of a curve: more cannot be seen
LOOKED_AT = ("global", "test", "common", "dev")  # splits of how well a model does; others are an algorithm's notes
RunReport = dict[str, Any]


def collect_run_reports(folders: Sequence[Path]) -> list[RunReport]:
    """Runs and their baselines, in order, each told by a name of its own."""
    found: list[RunReport] = []
    for folder in folders:
        below = sorted(p for p in (folder / "baselines").glob("*") if (p / "config.yaml").exists())
        for place in (folder, *below):
            if load_summary(place) is not None or place == folder:
                name = place.name if place != folder else load_config(place).algorithm.type
                found.append(read_run_report(place, f"{folder.name} {name}" if len(folders) > 1 else name))
    return found


def read_run_report(folder: Path, method: str | None = None, setting: str = "") -> RunReport:
    """One run. A run that is still going, or was interrupted, tells what there is."""
    config = load_config(folder)
    settings = config.to_dict()
    summary = load_summary(folder) or {}
    rows = read_metrics(folder).rows
    if not rows:
        raise ConfigError(f"'{folder}' has nothing to tell yet: no round of it is finished.")
    primary_metric = summary.get("headline") or next(r["name"] for r in rows if r["split"] in LOOKED_AT)
    return {
        "method": method or config.algorithm.type,
        "setting": setting,
        "seed": config.seed,
        "folder": str(folder),
        "finished": bool(summary),
        "headline": primary_metric,
        "summary": {
            k: summary.get(k) for k in ("task", "dataset", "model", "clients", "rounds", "seconds", "bytes", "lost")
        },
        "final": summary.get("final") or {},
        "dev_best": summary.get("dev_best"),
        "spread": summary.get("clients_final") or {},
        "curves": _curves(rows),
        "own": {
            r["who"]: r["value"]
            for r in rows
            if r["split"] == "test" and r["name"] == primary_metric and is_client_row(r)
        },
        "notes": _notes(rows),
        "partition": _read(folder / "partition.json"),
        "config": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        "settings": flatten_settings(settings),
        "environment": {**summary.get("machine", {}), **summary.get("versions", {})},
        "command": shlex.join(["motet", "run", str(folder / "config.yaml"), "--out", f"{folder}-again"]),
    }


def flatten_settings(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as section.key → value."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flatten_settings(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = json.dumps(value, ensure_ascii=False, default=str).strip('"')
    return found


def diff_settings(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Settings that are not the same, with both values."""
    for key in dict.fromkeys([*first, *second]):
        if first.get(key) != second.get(key) and key != "recipe":
            yield key, first.get(key, "–"), second.get(key, "–")


def _curves(rows: Sequence[Row]) -> dict[str, list[list[float]]]:
    """metric → [round, value, seconds, bytes] after each round at which it was looked at."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for r in rows:
        if r["who"] == "server" and r["split"] != "note" and isinstance(r["value"], int | float):
            name = r["name"] if r["split"] == "global" else f"{r['name']} on {r['split']}"
            found[name].append([r["round"], round(r["value"], 5), r["seconds"], r["bytes"]])
    return {name: _thinned(points) for name, points in found.items()}


def _thinned(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= MOST_POINTS:
        return points
    step = len(points) / MOST_POINTS
    return [points[int(i * step)] for i in range(MOST_POINTS)] + [points[-1]]


def _notes(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """What an algorithm wrote down of its rounds: name → round → value, or client → value where it is of single clients."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for r in rows:
        if r["split"] == "note":
            found[r["name"]][str(r["round"])] = r["value"]
        elif r["split"] not in LOOKED_AT and is_client_row(r):
            found[r["name"]].setdefault(str(r["round"]), {})[r["who"]] = r["value"]
    return dict(found)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.exists() else None
