"""The numbers a table can show of a run: metrics of the global or the clients' models, traffic and time.

| written in a suite | meaning |
| --- | --- |
| `accuracy` | metric of the global model on the global test set, after the last round |
| `best accuracy` | the same in its best round on the test set |
| `accuracy after 5` | the same after round 5 |
| `dev-best accuracy` | the same in the round that is best on the development set (needs `data.dev_share`) |
| `local accuracy` | each client's model on its own test set, unweighted mean over clients |
| `worst accuracy` | the same for the worst 10 % of the clients |
| `spread accuracy` | the standard deviation of the clients' scores; lower is fairer |
| `backdoor accuracy` | how often the trigger of an attack works (needs `attack.type=backdoor`); lower is better |
| `shared accuracy` | the global model on each client's test set, unweighted mean (needs `evaluation.by_client`) |
| `MB`, `MB up`, `MB down` | payload of the whole run in megabytes (10^6 bytes) |
| `rounds to 0.84`, `MB to 0.84`, `virtual seconds to 0.84` | cost until the primary metric first reached the value |
| `MB to local 0.84` | the same for the clients' models on their own test sets (needs `evaluation.local`) |
| `MB to local f1 0.84`, `rounds to f1 0.84` | the same for another metric |
| `accuracy after 600 virtual seconds` | the last evaluation before that time on the clock of an emulated network |
| `seconds` | wall time |

`primary_metric` in place of a metric stands for the primary metric of the task.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean
from motet.experiment.loop.example_scores import (
    BEST_DEV_SCORES,
    EXAMPLE_SCORES,
    GLOBAL_MODEL_SCORES,
    read_example_scores,
)
from motet.experiment.loop.metrics_log import Row, is_client_row, read_metrics
from motet.experiment.loop.scores import find_first_reaching, is_lower_better, score_spread, scores_by_round
from motet.experiment.recipe.run_config import RunConfig
from motet.report.client_bootstrap import ClientStatistic, client_spread, worst_tenth
from motet.tasks.metric_statistics import StatisticsMetric, metric_from_statistics

PRIMARY_METRIC = "primary_metric"
TOLERANCE = 0.05  # percentage points; numbers this close count as equal
_AFTER = re.compile(r"(\S+) after (\d+)")
_AFTER_SECONDS = re.compile(r"(\S+) after (\d+\.?\d*) virtual seconds")
_REACH = re.compile(r"(rounds|MB|virtual seconds) to (local )?(?:([a-z]\S*) )?(\d+\.?\d*|\.\d+)")
_COST_KEYS = {"rounds to": ("round", 1.0), "MB to": ("bytes", 1e6), "virtual seconds to": ("network_seconds", 1.0)}
_TRAFFIC_KEYS = {"MB": ("payload_up", "payload_down"), "MB up": ("payload_up",), "MB down": ("payload_down",)}
_PREFIXES = ("", "local", "worst", "spread", "shared", "best", "dev-best", "backdoor")
CLIENT_KINDS = ("local", "worst", "spread", "shared")  # numbers of the clients' own test sets


class MetricSpec(NamedTuple):
    """A parsed entry of `shows`.

    `kind` says which number it is: "last" (the metric after the last round), one of `_PREFIXES` ("best", "local", …),
    "after" (the metric after a given round), "after seconds" (at a given time of an emulated network), "rounds to", "MB
    to" or "virtual seconds to" (a given score), "MB", "MB up", "MB down" or "seconds". `target` is the metric whose score is
    to be reached, and `is_local` says that the score is the mean over the clients' own test sets.
    """

    kind: str
    metric: str | None = None
    round: int = 0
    threshold: float = 0.0
    target: str = PRIMARY_METRIC
    is_local: bool = False


def parse_metric(text: str) -> MetricSpec:
    """Parse an entry of `shows`. Raise ConfigError if no run can have such a number."""
    if text in (*_TRAFFIC_KEYS, "seconds"):
        return MetricSpec(kind=text)
    if match := _REACH.fullmatch(text):
        target, is_local = match[3] or PRIMARY_METRIC, match[2] is not None
        return MetricSpec(kind=f"{match[1]} to", threshold=float(match[4]), target=target, is_local=is_local)
    if match := _AFTER_SECONDS.fullmatch(text):
        return MetricSpec(kind="after seconds", metric=match[1], threshold=float(match[2]))
    if match := _AFTER.fullmatch(text):
        return MetricSpec(kind="after", metric=match[1], round=int(match[2]))
    prefix, _, metric = text.rpartition(" ")
    if prefix not in _PREFIXES:
        raise ConfigError(
            f"shows: '{text}' is not a number that a run has. Write a metric, or local, worst, spread, shared, best or "
            "dev-best and a metric, or e.g. 'accuracy after 5', 'accuracy after 600 virtual seconds', 'rounds to 0.8', "
            "'MB to 0.8', 'MB to local 0.8', 'MB to f1 0.8', 'virtual seconds to 0.8', MB, MB up, MB down, seconds."
        )
    return MetricSpec(kind=prefix or "last", metric=metric)


class ExampleScores(NamedTuple):
    """Per-example values behind a number: one row per test example, and the index of the client that owns it.

    `statistic` computes the number from the mean row and the number of rows; None means that the number is the mean.
    """

    rows: np.ndarray
    owners: np.ndarray
    statistic: StatisticsMetric | None


@dataclass(frozen=True)
class TableMetric:
    """A number that a table shows of each run. Scores such as accuracy or F1 are shown in percent."""

    shows: str
    clients: str | None = None  # only clients with names that start with this
    split: str = "global"

    @cached_property
    def spec(self) -> MetricSpec:
        return parse_metric(self.shows)

    @property
    def lower_is_better(self) -> bool:
        return self.spec.metric is None or is_lower_better(self.spec.metric) or self.spec.kind == "spread"

    @property
    def metric_over_rounds(self) -> str:
        """The metric, if it is read after a given round."""
        return self.spec.metric or "" if self.spec.kind == "after" else ""

    @property
    def axis_label(self) -> str:
        """What the number is, with its unit: accuracy (%), loss, MB, rounds, seconds."""
        if self.spec.metric is None:
            return self.spec.kind.removesuffix(" to")
        name = "score" if self.spec.metric == PRIMARY_METRIC else self.spec.metric
        return f"{name} (%)" if self.scale == 100 else name

    @property
    def is_per_client(self) -> bool:
        return self.spec.kind in CLIENT_KINDS

    @property
    def is_score(self) -> bool:
        """True if the number says how good the models are, in percent."""
        return not self.lower_is_better and self.spec.kind not in ("worst", "backdoor")

    @property
    def is_traffic(self) -> bool:
        """True if the number is counted, not estimated: it hardly varies between seeds."""
        return self.spec.kind in _TRAFFIC_KEYS

    @property
    def client_statistic(self) -> ClientStatistic | None:
        """The function from the clients' scores to the number, if it is not their mean."""
        return {"worst": worst_tenth, "spread": client_spread}.get(self.spec.kind)

    @property
    def scale(self) -> float:
        is_score = self.spec.metric is not None and not is_lower_better(self.spec.metric)
        return 100.0 if is_score else 1.0

    def read(self, summary: dict[str, Any], folder: Path) -> float | None:
        """Read the number of a run. None if the run has no such number, e.g. never reached a threshold."""
        kind = self.spec.kind
        if kind in _TRAFFIC_KEYS:
            return sum(float(summary["bytes"][key]) for key in _TRAFFIC_KEYS[kind]) / 1e6
        if kind == "seconds":
            return float(summary["seconds"])
        rows = read_metrics(folder).rows
        if kind in _COST_KEYS:
            return _read_cost(rows, _resolve(self.spec.target, summary), self.spec)
        score = self._read_score(rows, summary)
        return None if score is None else self.scale * score

    def _read_score(self, rows: list[Row], summary: dict[str, Any]) -> float | None:
        kind = self.spec.kind
        metric = self._metric_name(summary)
        if kind in ("local", "worst", "spread"):
            spread = score_spread(self._client_scores(rows, metric))
            return spread.get({"local": "mean", "worst": "worst_decile", "spread": "std"}[kind])
        if kind == "shared":
            shared = [r for r in self._client_rows(rows) if r["split"] == "common" and r["name"] == metric]
            return float(np.mean([r["value"] for r in shared if r["round"] == shared[-1]["round"]])) if shared else None
        if kind in ("after", "dev-best"):
            round = self.spec.round if kind == "after" else (summary.get("dev_best") or {"round": -1})["round"]
            return scores_by_round(rows, self.split).get(round, {}).get(metric)
        split = "backdoor" if kind == "backdoor" else self.split
        matching = [r for r in rows if r["who"] == "server" and r["split"] == split and r["name"] == metric]
        if kind == "after seconds":
            matching = [r for r in matching if r["network_seconds"] <= self.spec.threshold]
        values = [r["value"] for r in matching]
        if not values:
            return None
        best = min if self.lower_is_better else max
        return float(best(values) if kind == "best" else values[-1])

    def read_client_scores(self, summary: dict[str, Any], folder: Path) -> np.ndarray:
        """Read the score of each client's model on its own test set."""
        return self.scale * np.array(self._client_scores(read_metrics(folder).rows, self._metric_name(summary)))

    def _metric_name(self, summary: dict[str, Any]) -> str:
        return _resolve(self.spec.metric or "", summary)

    def _client_scores(self, rows: list[Row], metric: str) -> list[float]:
        return [r["value"] for r in self._client_rows(rows) if r["split"] == "test" and r["name"] == metric]

    def check(self, metric_names: Collection[str], config: RunConfig) -> None:
        """Raise ConfigError if a run with this configuration, for a task with these metrics, will not have the number."""
        spec = self.spec
        metric = spec.metric or spec.target
        if metric not in (*metric_names, PRIMARY_METRIC, "loss", "epsilon"):
            raise ConfigError(
                f"shows: '{self.shows}': this task has the metrics {', '.join(metric_names)}."
                f"{did_you_mean(metric, metric_names)}"
            )
        if spec.kind in ("after seconds", "virtual seconds to") and config.network is None:
            raise ConfigError(f"shows: '{self.shows}': the run has no virtual clock; add a section network.")
        if spec.is_local and not config.evaluation.local:
            raise ConfigError(
                f"shows: '{self.shows}': only the last round has local scores; add evaluation: {{local: true}}."
            )
        every = config.evaluation.every
        if spec.kind == "after" and (
            spec.round > config.rounds or (spec.round % every and spec.round != config.rounds)
        ):
            raise ConfigError(
                f"shows: '{self.shows}': the run has {config.rounds} rounds and is evaluated every {every}. "
                "Name a round that is evaluated."
            )

    def read_examples(self, folder: Path, value: float) -> tuple[ExampleScores | None, ExampleScores | None]:
        """Read the per-example scores and the per-example sufficient statistics behind a number.

        Each is None if `value` does not follow from it: it belongs to another round or to another metric.
        """
        file = {"dev-best": BEST_DEV_SCORES, "shared": GLOBAL_MODEL_SCORES}.get(self.spec.kind, EXAMPLE_SCORES)
        by_owner = {owner: rows for owner, rows in read_example_scores(folder, file).items() if len(rows)}
        if self.is_per_client:
            owners = [owner for owner in by_owner if owner != "" and owner.startswith(self.clients or "")]
        else:
            owners = [owner for owner in by_owner if owner == ""]
        if not owners or self.lower_is_better or self.split != "global" or self.spec.kind == "backdoor":
            return None, None
        owner_ids = np.concatenate([np.full(len(by_owner[owner]), i) for i, owner in enumerate(owners)])
        widths = {by_owner[owner].shape[1] - 1 for owner in owners}
        metric = (
            metric_from_statistics(self.spec.metric, widths.pop()) if self.spec.metric and len(widths) == 1 else None
        )

        def select(columns: slice, statistic: StatisticsMetric | None) -> ExampleScores | None:
            means = [(by_owner[owner][:, columns].mean(0, dtype=np.float64), len(by_owner[owner])) for owner in owners]
            number = float(np.mean([statistic(mean, count) if statistic else mean[0] for mean, count in means]))
            if abs(self.scale * number - value) > TOLERANCE:
                return None
            rows = np.concatenate([by_owner[owner][:, columns] for owner in owners])
            return ExampleScores(rows=rows, owners=owner_ids, statistic=statistic)

        return select(slice(0, 1), None), select(slice(1, None), metric) if metric else None

    def _client_rows(self, rows: list[Row]) -> list[Row]:
        return [r for r in rows if is_client_row(r) and r["who"].startswith(self.clients or "")]


def _resolve(metric: str, summary: Mapping[str, Any]) -> str:
    """Return the name of a metric in the log of a run."""
    return str(summary["primary_metric"]) if metric == PRIMARY_METRIC else metric


def _read_cost(rows: list[Row], metric: str, spec: MetricSpec) -> float | None:
    """Return the rounds, megabytes or virtual seconds until the models first reached the threshold."""
    column, unit = _COST_KEYS[spec.kind]
    source = ("clients", "test") if spec.is_local else ("server", "global")
    row = find_first_reaching(rows, *source, metric, spec.threshold)
    # Bounds (isolated, centralized) send nothing: 0 MB is not a cost to compare with.
    return None if row is None else row[column] / unit or None
