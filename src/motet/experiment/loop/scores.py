"""From many clients' metrics to the few numbers a run is spoken of by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from motet.core.script import ClientId
from motet.experiment.build.run_plan import AnyFederation, TaskMetrics
from motet.experiment.loop.metrics_log import MetricsLog, Row


def group_means(federation: AnyFederation, reports: Mapping[ClientId, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each group's metrics: the mean over those of its clients that reported."""
    found: dict[str, list[dict[str, float]]] = {}
    for client, scores in reports.items():
        group = federation.group_for(client)
        known = {name: scores[name] for name in group.task.metric_names}
        found.setdefault(group.name, []).append({**known, "score": scores[group.task.primary_metric]})
    return {name: {m: sum(r[m] for r in rows) / len(rows) for m in rows[0]} for name, rows in found.items()}


def mean_over_groups(task: TaskMetrics, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean over groups, of what all of them are judged by."""
    return {m: sum(g[m] for g in groups.values()) / len(groups) for m in task.metric_names if groups}


LOWER_IS_BETTER = ("loss", "perplexity")  # of these less is better


class BestDevRound(NamedTuple):
    """The round that was best on the development set, by one of the metrics: all of them there, and on the global test set."""

    by: str
    round: int
    dev: dict[str, float]
    test: dict[str, float]


def final_and_best(record: MetricsLog, primary_metric: str) -> tuple[dict[str, float], dict[str, float]]:
    """What the server saw last, and in the round that was best by the headline."""
    seen = scores_by_round(record.rows, "global")
    return (seen[max(seen)], seen[find_best_round(seen, primary_metric)]) if seen else ({}, {})


def find_best_dev_round(record: MetricsLog, by: str) -> BestDevRound | None:
    """None where there is no development set."""
    dev, test = (scores_by_round(record.rows, split) for split in ("dev", "global"))
    if not dev:
        return None
    best = find_best_round(dev, by)
    return BestDevRound(by, best, dev[best], test.get(best, {}))


def scores_by_round(rows: Sequence[Row], split: str) -> dict[int, dict[str, float]]:
    """What the server saw of a split, round by round."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["who"] == "server" and row["split"] == split:
            found.setdefault(row["round"], {})[row["name"]] = row["value"]
    return found


def find_best_round(seen: Mapping[int, Mapping[str, float]], by: str) -> int:
    """The first of the best; a round whose metric is no number is never it, unless all are such."""
    sign = -1 if by in LOWER_IS_BETTER else 1

    def worth(found: int) -> float:
        value = sign * seen[found].get(by, math.nan)
        return value if math.isfinite(value) else -math.inf

    return max(seen, key=lambda r: (worth(r), -r))
