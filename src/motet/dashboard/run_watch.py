"""One run in the list of the dashboard: its state, progress and score. Reads only the lines that are new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.experiment.commands.page_metrics import EPSILON_CURVE, PageMetrics, find_first_metric
from motet.experiment.commands.report_data import baseline_folders, find_score
from motet.experiment.commands.run_folder import is_served, load_config, load_summary
from motet.experiment.commands.run_state import RunState, read_run_state
from motet.experiment.loop.metrics_tail import MetricsTail
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_status import read_status

MAX_TREND_POINTS = 60

Facts = dict[str, Any]


class RunWatch:
    """Keeps the last facts of a run, so that a look at it costs only what is new since the last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: RunConfig | None = None
        self._tail = MetricsTail(folder)
        self._finished: Facts | None = None
        self._reset()

    def _reset(self) -> None:
        self._trend: list[float] = []
        self._facts: Facts = {"round": 0, "seconds": 0.0, "bytes": 0}

    def read(self) -> Facts:
        """Return the facts of the run. A folder that cannot be read as a run has an error in place of most of them."""
        try:
            return self._finished or self._read()
        except Exception as error:  # a damaged folder, or a hostile one, must not hide the other runs
            return {"state": "failed", "reason": f"This folder cannot be read: {error}", "updated": 0.0}

    def _read(self) -> Facts:
        self.config = self.config or load_config(self.folder)
        state = read_run_state(self.folder)
        summary = load_summary(self.folder) or {}
        self._read_new_rows(summary)
        metric = self._facts.get("metric")
        score = find_score(summary, metric)
        facts: Facts = {
            **self._facts,
            **_describe(self.config),
            "state": state.name,
            "reason": state.reason,
            "score": self._trend[-1] if score is None and self._trend else score,
            "trend": self._trend,
            "updated": _last_change(self.folder),
            "seconds_left": self._seconds_left(state),
        }
        if state.name == "finished":
            return self._add_baselines(facts)
        return {**facts, "deployment": _count_clients(self.folder)} if is_served(self.folder) else facts

    def _read_new_rows(self, summary: Facts) -> None:
        metric = summary.get("primary_metric") or self._facts.get("metric")
        metric = metric or find_first_metric(MetricsTail(self.folder).read())
        self._tail.is_restart = False
        metrics = PageMetrics(self._tail.read(), metric)
        if self._tail.is_restart:
            self._reset()
        if metrics.round:
            self._facts |= {"round": metrics.round, "seconds": metrics.seconds, "bytes": metrics.bytes}
        self._facts["metric"] = metric
        for name, key in ((metric, "trend"), (EPSILON_CURVE, "epsilon")):
            values = [point[1] for point in metrics.curves.get(name or "", ())]
            if values and key == "trend":
                self._trend = _thin([*self._trend, *values])
            elif values:
                self._facts["epsilon"] = values[-1]

    def _seconds_left(self, state: RunState) -> float | None:
        done, rounds = self._facts["round"], self.config.rounds if self.config else 0
        if state.name != "running" or not done:
            return None
        return float(self._facts["seconds"] / done * max(0, rounds - done))

    def _add_baselines(self, facts: Facts) -> Facts:
        """Add how many baselines are done. A run is in progress until all of them are; then its facts never change."""
        states = [read_run_state(folder).name for folder in baseline_folders(self.folder)]
        pending = [name for name in states if name != "finished"]
        if states:
            facts |= {"baselines": len(states), "baselines_done": len(states) - len(pending)}
        if pending:
            return {**facts, "state": "running" if {"running", "waiting"} & set(pending) else pending[0]}
        self._finished = facts
        return facts


def _describe(config: RunConfig) -> Facts:
    return {
        "algorithm": config.algorithm.type,
        "dataset": config.data.name or "own data",
        "model": config.model.name,
        "rounds": config.rounds,
        "seed": config.seed,
    }


def _count_clients(folder: Path) -> Facts:
    try:
        status = read_status(str(folder))
    except ConfigError:
        return {}
    return {"state": status.get("state"), "connected": len(status.get("connected", ())), "away": status.get("away", [])}


def _last_change(folder: Path) -> float:
    files = (folder / name for name in ("metrics.jsonl", "config.yaml"))
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def _thin(values: list[float]) -> list[float]:
    """Drop every second value if there are too many to see, but keep the last."""
    return values if len(values) <= MAX_TREND_POINTS else [*values[:-1:2], values[-1]]
