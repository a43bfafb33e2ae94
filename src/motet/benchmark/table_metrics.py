"""What a table shows of a run: a metric of the global model, a mean over the clients' own, bytes, seconds.

| written | read |
| --- | --- |
| `accuracy` | the metric after the last round, on the global test set; `best accuracy` at its best round there |
| `accuracy after 5` | the metric after that round |
| `dev-best accuracy` | on the global test set after the round that is best on the development set (data.dev_share) |
| `own accuracy` | every client's own model on its own test set, unweighted mean; `worst accuracy` of the worst tenth |
| `common accuracy` | the common model on each client's test set, unweighted mean (`evaluation.by_client`) |
| `MB`, `MB up`, `MB down` | payload of the whole run, decimal megabytes |
| `rounds to 0.84`, `MB to 0.84` | until the headline first reached it |
| `seconds` | wall time |
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motet.core.errors import ConfigError, did_you_mean
from motet.experiment.loop.example_scores import (
    BEST_DEV_SCORES,
    EXAMPLE_SCORES,
    GLOBAL_MODEL_SCORES,
    read_example_scores,
)
from motet.experiment.loop.metrics_log import Row, is_client_row, read_metrics, score_spread
from motet.experiment.loop.scores import LOWER_IS_BETTER, scores_by_round
from motet.experiment.recipe.run_config import RunConfig
from motet.tasks.sufficient_statistics import StatisticsMetric, metric_from_statistics

_AFTER = re.compile(r"(\S+) after (\d+)")
ROUNDING = 0.05  # of a number in per cent
_KINDS = ("", "own", "worst", "common", "best", "dev-best")
_MOVED = {"MB": ("payload_up", "payload_down"), "MB up": ("payload_up",), "MB down": ("payload_down",)}


def parse_metric(shows: str) -> str | None:
    """The metric that is shown, if it is one; what can be read off no run at all is refused."""
    if shows in (*_MOVED, "seconds") or re.fullmatch(r"(rounds|MB) to [\d.]+", shows):
        return None
    if found := _AFTER.fullmatch(shows):
        return found[1]
    kind, _, metric = shows.rpartition(" ")
    if kind not in _KINDS:
        raise ConfigError(
            f"shows: '{shows}' is nothing a run has. Write a metric, alone, with own, worst, common, best or dev-best before "
            "it, or with 'after 5' behind it; or MB, MB up, MB down, seconds, 'rounds to 0.8', 'MB to 0.8'."
        )
    return metric


class ExampleScores(NamedTuple):
    """Test items behind a number: a row each, whose it is, and how the number follows from their mean; None: it is the mean."""

    rows: np.ndarray
    owners: np.ndarray
    statistic: StatisticsMetric | None


@dataclass(frozen=True)
class TableMetric:
    """One number of a run; a share (accuracy, F1) is told in per cent."""

    shows: str
    of: str | None = None
    split: str = "global"

    @property
    def lower_is_better(self) -> bool:
        metric = self.shows.partition(" after ")[0].split()[-1]
        return self.shows in (*_MOVED, "seconds") or " to " in self.shows or metric in LOWER_IS_BETTER

    @property
    def course(self) -> str:
        """What is read after a given round, if so it is."""
        metric, after, _ = self.shows.partition(" after ")
        return metric if after else ""

    @property
    def by_client(self) -> bool:
        return self.shows.startswith(("own ", "worst ", "common "))

    @property
    def scale(self) -> float:
        return 1.0 if self.lower_is_better else 100.0

    def value(self, summary: dict[str, Any], folder: Path) -> float | None:
        """None where the run has no such number (a threshold it never reached)."""
        if self.shows in _MOVED:
            return sum(float(summary["bytes"][way]) for way in _MOVED[self.shows]) / 1e6
        if self.shows == "seconds":
            return float(summary["seconds"])
        rows = read_metrics(folder).rows
        if found := re.fullmatch(r"(rounds|MB) to ([\d.]+)", self.shows):
            return _reached(rows, summary["headline"], float(found[2]), found[1])
        if found := _AFTER.fullmatch(self.shows):
            metric = summary["headline"] if found[1] == "headline" else found[1]
            value = scores_by_round(rows, self.split).get(int(found[2]), {}).get(metric)
            return None if value is None else self.scale * value
        kind, _, metric = self.shows.rpartition(" ")
        metric = summary["headline"] if metric == "headline" else metric
        if kind in ("own", "worst"):
            own = [r["value"] for r in self._of(rows) if r["split"] == "test" and r["name"] == metric]
            told = score_spread(own)
            return self.scale * told["mean" if kind == "own" else "worst_decile"] if told else None
        if kind == "common":
            seen = [r for r in self._of(rows) if r["split"] == "common" and r["name"] == metric]
            last = [r["value"] for r in seen if r["round"] == seen[-1]["round"]]
            return self.scale * float(np.mean(last)) if last else None
        if kind == "dev-best":
            chosen = summary.get("dev_best")
            value = scores_by_round(rows, self.split).get(chosen["round"], {}).get(metric) if chosen else None
            return None if value is None else self.scale * value
        values = [r["value"] for r in rows if r["who"] == "server" and r["split"] == self.split and r["name"] == metric]
        best = min if self.lower_is_better else max
        return self.scale * (best(values) if kind == "best" else values[-1]) if values else None

    def check(self, metric_names: Collection[str], config: RunConfig) -> None:
        """That a run of this configuration, whose task has these measures, will have the number."""
        metric = parse_metric(self.shows)
        if metric is not None and metric not in (*metric_names, "headline", "loss", "epsilon"):
            raise ConfigError(
                f"shows: '{self.shows}': this task has {', '.join(metric_names)}.{did_you_mean(metric, metric_names)}"
            )
        if found := _AFTER.fullmatch(self.shows):
            number, every = int(found[2]), config.evaluation.every
            if number > config.rounds or (number % every and number != config.rounds):
                raise ConfigError(
                    f"shows: '{self.shows}': there are {config.rounds} rounds, judged after every {every}; name one of those."
                )

    def items(self, folder: Path, value: float) -> tuple[ExampleScores | None, ExampleScores | None]:
        """The items this number is about, as scores of which it is the mean and as tallies from which it follows; None where
        that is not so, since it is of another round or another metric."""
        found = read_example_scores(
            folder,
            {"dev-best": BEST_DEV_SCORES, "common": GLOBAL_MODEL_SCORES}.get(self.shows.split()[0], EXAMPLE_SCORES),
        )
        found = {n: rows for n, rows in found.items() if len(rows)}
        wanted = [n for n in found if (n.startswith(self.of or "") and n != "" if self.by_client else n == "")]
        if not wanted or self.lower_is_better or self.split != "global":
            return None, None
        owners = np.concatenate([np.full(len(found[n]), i) for i, n in enumerate(wanted)])
        metric, widths = parse_metric(self.shows), {found[n].shape[1] - 1 for n in wanted}
        tallied = metric_from_statistics(metric, widths.pop()) if metric and len(widths) == 1 else None

        def sample(columns: slice, statistic: StatisticsMetric | None) -> ExampleScores | None:
            means = [found[n][:, columns].mean(0, dtype=np.float64) for n in wanted]
            number = float(np.mean([statistic(m) if statistic else m[0] for m in means]))
            if abs(self.scale * number - value) > ROUNDING:
                return None
            return ExampleScores(np.concatenate([found[n][:, columns] for n in wanted]), owners, statistic)

        return sample(slice(0, 1), None), sample(slice(1, None), tallied) if tallied else None

    def _of(self, rows: list[Row]) -> list[Row]:
        return [r for r in rows if is_client_row(r) and r["who"].startswith(self.of or "")]


def _reached(rows: list[Row], primary_metric: str, threshold: float, unit: str) -> float | None:
    for row in rows:
        if (row["who"], row["split"], row["name"]) == ("server", "global", primary_metric) and row[
            "value"
        ] >= threshold:
            return float(row["round"]) if unit == "rounds" else row["bytes"] / 1e6 or None  # a bound moves nothing
    return None
