"""The data of `motet report`: runs as plain values for the HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.experiment.commands.data_inspection import read_inspections
from motet.experiment.commands.page_metrics import PageMetrics, find_first_metric
from motet.experiment.commands.run_folder import is_served, load_config, load_summary
from motet.experiment.commands.run_records import LabelRecord, PartitionTable, is_personal
from motet.experiment.commands.run_state import advise_progress, read_run_state
from motet.experiment.commands.run_summary import LABELS_FILE
from motet.experiment.deploy.served_run import clients_bring_data
from motet.experiment.loop.metrics_tail import MetricsTail
from motet.experiment.loop.text_samples import read_samples
from motet.experiment.recipe.flat_settings import flatten_settings
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_status import read_status
from motet.transport.json_files import read_json

SUMMARY_KEYS = ("task", "dataset", "model", "clients", "rounds", "seconds", "bytes")
RunReport = dict[str, Any]


def collect_run_reports(folders: Mapping[str, Path]) -> list[RunReport]:
    """Read runs, by their names, and their baselines. Each gets an ID and a unique method name."""
    reports: list[RunReport] = []
    for run, run_folder in folders.items():
        for folder in (run_folder, *baseline_folders(run_folder)):
            is_run = folder == run_folder
            name = load_config(folder).algorithm.type if is_run else folder.name
            report = read_run_report(folder, f"{run} {name}" if len(folders) > 1 else name)
            reports.append({**report, "id": run if is_run else f"{run}/baselines/{folder.name}"})
    return reports


def join_titles(names: Sequence[str]) -> str:
    """Return the title of a report of several runs."""
    return " and ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def baseline_folders(run: Path) -> list[Path]:
    """Return the folders of a run's baselines."""
    return sorted(path.parent for path in run.glob("baselines/*/config.yaml"))


def require_metrics(reports: Sequence[RunReport]) -> None:
    """Raise an error if a run has nothing to draw yet."""
    for report in reports:
        if not report["curves"] and "/baselines/" not in report["id"]:
            raise ConfigError(
                f"'{report['folder']}' has no metrics yet; expected at least one finished round. "
                f"{advise_progress(Path(report['folder']))}"
            )


def read_run_report(folder: Path, method: str | None = None, setting: str = "") -> RunReport:
    """Read one run. A run that is not finished has the rounds so far and no summary.

    Who reads a report of clients with their own data learns what `motet status` tells: no text, and no score of a single
    client.
    """
    config = load_config(folder)
    settings = config.to_dict()
    summary = load_summary(folder) or {}
    state = read_run_state(folder)
    progress = read_progress(folder, config, summary)
    primary_metric = progress["primary_metric"]
    return {
        "method": method or config.algorithm.type,
        "setting": setting,
        "seed": config.seed,
        "folder": str(folder),
        "finished": bool(summary),
        "state": state.name,
        "reason": state.reason,
        "rounds": config.rounds,
        "budget": config.privacy.options.get("budget"),
        "score": find_score(summary, primary_metric),
        "score_split": summary.get("primary_metric_split", "global"),
        "summary": {"dataset": config.data.name, "model": config.model.name, **_select(summary, SUMMARY_KEYS)},
        "final": summary.get("final") or {},
        "dev_best": summary.get("dev_best"),
        "client_spread": _read_client_spread(summary, config),
        "inspections": _collect_inspections(folder, config),
        "partition": read_json(folder / "partition.json", PartitionTable),
        "samples": [] if clients_bring_data(config) else read_samples(folder),
        "labels": read_json(folder / LABELS_FILE, dict[str, LabelRecord]) or {},
        "config": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        "settings": flatten_settings(settings),
        "environment": {**summary.get("machine", {}), **summary.get("versions", {})},
        "command": _repeat_command(config, folder),
        **progress,
    }


def read_progress(folder: Path, config: RunConfig, summary: Mapping[str, Any], cursor: str = "") -> dict[str, Any]:
    """Return what a run has logged after `cursor`: points of curves, scores of clients, notes, and the new cursor."""
    metric = summary.get("primary_metric") or find_first_metric(MetricsTail(folder).read())
    tail = MetricsTail(folder, cursor)
    metrics = PageMetrics(tail.read(), metric)
    logged = metrics.to_dict()
    if clients_bring_data(config):
        logged |= {"client_scores": {}, "notes": {}}
    return {
        **logged,
        "primary_metric": metric,
        "round": metrics.round,
        "seconds": metrics.seconds,
        "traffic": {"up": metrics.bytes_up, "down": metrics.bytes - metrics.bytes_up},
        "cursor": tail.cursor,
        "is_restart": tail.is_restart,
        "deployment": read_status(str(folder)) if is_served(folder) else None,
    }


def _select(values: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _read_client_spread(summary: Mapping[str, Any], config: RunConfig) -> dict[str, float]:
    """Return the mean over clients and how much they differ. Of few clients with their own data, only the mean."""
    spread: dict[str, float] = summary.get("clients_final") or {}
    return _select(spread, ("mean",)) if clients_bring_data(config) else spread


def _repeat_command(config: RunConfig, folder: Path) -> str:
    """Return the command that runs the same configuration in a new folder."""
    command = "serve" if clients_bring_data(config) else "run"
    return shlex.join(["motet", command, str(folder / "config.yaml"), "--out", f"{folder}-again"])


def _collect_inspections(folder: Path, config: RunConfig) -> list[dict[str, Any]]:
    """Return the inspection of each corpus as a table, without samples of a deployed run."""
    hides_samples = clients_bring_data(config)
    inspections = []
    for each in read_inspections(folder):
        rows = [row for row in each.table.items() if not (hides_samples and row[0].startswith("sample "))]
        inspections.append({"title": each.corpus.name, "rows": rows, "findings": list(map(str, each.findings))})
    return inspections


def find_score(summary: Mapping[str, Any], metric: str | None) -> float | None:
    """Return the number that leads a run: for personal models, the mean over the clients' own test sets."""
    score: float | None = (summary.get("clients_final") or {}).get("mean") if is_personal(summary) else None
    return (summary.get("final") or {}).get(metric or "") if score is None else score
