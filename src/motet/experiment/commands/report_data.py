"""The data of `motet report`: runs as plain values for the HTML page. `motet compare` uses the settings, too."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.experiment.commands.data_inspection import read_inspections
from motet.experiment.commands.run_folder import load_config, load_summary
from motet.experiment.deploy.served_run import clients_bring_data
from motet.experiment.loop.json_files import read_json
from motet.experiment.loop.metrics_log import Row, is_client_row, read_metrics
from motet.experiment.loop.scores import INITIAL_SPLIT
from motet.experiment.loop.text_samples import read_samples
from motet.experiment.recipe.run_config import RunConfig

MAX_POINTS = 400  # of a curve; more cannot be seen
EVALUATION_SPLITS = (
    "global",
    "test",
    "common",
    "dev",
    INITIAL_SPLIT,
)  # rows with other splits are an algorithm's notes
SUMMARY_KEYS = ("task", "dataset", "model", "clients", "rounds", "seconds", "bytes", "lost")
RunReport = dict[str, Any]


def collect_run_reports(folders: Sequence[Path]) -> list[RunReport]:
    """Read runs and their baselines, in order, each with a unique method name."""
    reports: list[RunReport] = []
    for run in folders:
        baselines = sorted(path for path in (run / "baselines").glob("*") if (path / "config.yaml").exists())
        for folder in (run, *baselines):
            if load_summary(folder) is not None or folder == run:
                name = load_config(folder).algorithm.type if folder == run else folder.name
                reports.append(read_run_report(folder, f"{run.name} {name}" if len(folders) > 1 else name))
    return reports


def read_run_report(folder: Path, method: str | None = None, setting: str = "") -> RunReport:
    """Read one run. A run that is not finished has the rounds so far and no summary."""
    config = load_config(folder)
    settings = config.to_dict()
    summary = load_summary(folder) or {}
    rows = read_metrics(folder).rows
    if not rows:
        raise ConfigError(f"'{folder}' has no metrics yet; expected at least one finished round. Try again later.")
    primary_metric = summary.get("headline") or next(r["name"] for r in rows if r["split"] in EVALUATION_SPLITS)
    return {
        "method": method or config.algorithm.type,
        "setting": setting,
        "seed": config.seed,
        "folder": str(folder),
        "finished": bool(summary),
        "primary_metric": primary_metric,
        "score": _find_score(summary, primary_metric),
        "score_split": summary.get("headline_split", "global"),
        "summary": {key: summary.get(key) for key in SUMMARY_KEYS},
        "final": summary.get("final") or {},
        "dev_best": summary.get("dev_best"),
        "client_spread": summary.get("clients_final") or {},
        "curves": _collect_curves(rows),
        "client_scores": _client_scores(rows, primary_metric),
        "notes": _collect_notes(rows),
        "inspections": _collect_inspections(folder),
        "partition": read_json(folder / "partition.json"),
        "samples": read_samples(folder),
        "config": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        "settings": flatten_settings(settings),
        "environment": {**summary.get("machine", {}), **summary.get("versions", {})},
        "command": _repeat_command(config, folder),
    }


def _repeat_command(config: RunConfig, folder: Path) -> str:
    """Return the command that runs the same configuration in a new folder."""
    command = "serve" if clients_bring_data(config) else "run"
    return shlex.join(["motet", command, str(folder / "config.yaml"), "--out", f"{folder}-again"])


def _collect_inspections(folder: Path) -> list[dict[str, Any]]:
    """Return the inspection of each corpus as a table."""
    return [
        {"title": each.corpus.name, "rows": list(each.table.items()), "findings": list(map(str, each.findings))}
        for each in read_inspections(folder)
    ]


def _find_score(summary: Mapping[str, Any], metric: str) -> float | None:
    """Return the number that leads a run: for personal models, the mean over the clients' own test sets."""
    is_local = summary.get("headline_split") == "local"
    score: float | None = (summary.get("clients_final") or {}).get("mean") if is_local else None
    return (summary.get("final") or {}).get(metric) if score is None else score


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as `section.key` -> value, both as text."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False, default=str).strip('"')
    return flat


def diff_settings(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ, with both values. The name of the recipe does not count."""
    for key in dict.fromkeys([*first, *second]):
        if first.get(key) != second.get(key) and key != "recipe":
            yield key, first.get(key, "–"), second.get(key, "–")


def _client_scores(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """Return the metric of each client's model on its test set."""
    return {r["who"]: r["value"] for r in rows if r["split"] == "test" and r["name"] == metric and is_client_row(r)}


def _collect_curves(rows: Sequence[Row]) -> dict[str, list[list[float]]]:
    """Return for each metric [round, value, seconds, bytes] after each evaluation."""
    curves: dict[str, list[list[float]]] = defaultdict(list)
    for row in rows:
        if row["who"] == "server" and row["split"] != "note" and isinstance(row["value"], int | float):
            is_global = row["split"] in ("global", INITIAL_SPLIT)
            name = row["name"] if is_global else f"{row['name']} on {row['split']}"
            curves[name].append([row["round"], round(row["value"], 5), row["seconds"], row["bytes"]])
    return {name: _thin_out(points) for name, points in curves.items()}


def _thin_out(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= MAX_POINTS:
        return points
    step = len(points) / MAX_POINTS
    return [points[int(i * step)] for i in range(MAX_POINTS)] + [points[-1]]


def _collect_notes(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return an algorithm's notes: name -> round -> value.

    The values of notes on single clients are dictionaries: client -> value.
    """
    notes: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        if row["split"] == "note":
            notes[row["name"]][str(row["round"])] = row["value"]
        elif row["split"] not in EVALUATION_SPLITS and is_client_row(row):
            notes[row["name"]].setdefault(str(row["round"]), {})[row["who"]] = row["value"]
    return dict(notes)
