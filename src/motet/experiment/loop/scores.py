"""Reduce the metrics of many clients and rounds to the few numbers of a summary."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motet.core.script import ClientId
from motet.experiment.build.run_plan import AnyFederation, TaskMetrics
from motet.experiment.loop.metrics_log import MetricsLog, Row
from motet.report.client_bootstrap import client_spread, worst_tenth

_ERROR_WORDS = (
    "loss",
    "perplexity",
    "ppl",
    "nll",
    "error",
    "mae",
    "mse",
    "rmse",
    "wer",
    "cer",
    "ter",
    "ece",
    "brier",
    "distance",
)


class BestDevRound(NamedTuple):
    """The best round on the development set, by the metric `by`: all metrics there, and on the global test set."""

    by: str
    round: int
    dev: dict[str, float]
    test: dict[str, float]


def group_means(
    federation: AnyFederation, reports: Mapping[ClientId, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Return the metrics of each group: the mean over its clients that reported. `score` is the primary metric."""
    by_group: dict[str, list[dict[str, float]]] = {}
    for client, scores in reports.items():
        group = federation.group_for(client)
        metrics = {name: scores[name] for name in group.task.metric_names if name in scores}
        by_group.setdefault(group.name, []).append({**metrics, "score": scores[group.task.primary_metric]})
    return {name: mean_metrics(rows) for name, rows in by_group.items()}


def mean_over_groups(task: TaskMetrics, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over groups of the metrics that all groups have."""
    return {m: sum(group[m] for group in groups.values()) / len(groups) for m in task.metric_names if groups}


def final_and_best(log: MetricsLog, primary_metric: str, kept: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the global test metrics of the model that is kept, and after the round with the best primary metric."""
    rounds = scores_by_round(log.rows, "global")
    return (rounds[kept], rounds[find_best_round(rounds, primary_metric)]) if rounds else ({}, {})


def find_best_dev_round(log: MetricsLog, metric: str) -> BestDevRound | None:
    """Return the best round on the development set; None if there is no development set."""
    dev, test = (scores_by_round(log.rows, split) for split in ("dev", "global"))
    if not dev:
        return None
    best = find_best_round(dev, metric)
    return BestDevRound(by=metric, round=best, dev=dev[best], test=test.get(best, {}))


def describe_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())


def scores_by_round(rows: Sequence[Row], split: str) -> dict[int, dict[str, float]]:
    """Return the server's metrics on a split, by round."""
    rounds: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["who"] == "server" and row["split"] == split:
            rounds.setdefault(row["round"], {})[row["name"]] = row["value"]
    return rounds


def find_best_round(rounds: Mapping[int, Mapping[str, float]], metric: str) -> int:
    """Return the best round, the first of equals. Values that are not finite are worse than all others."""

    def value(round: int) -> float:
        return _rank(rounds[round].get(metric, math.nan), metric)

    return max(rounds, key=lambda round: (value(round), -round))


def evaluations_since_best(rounds: Mapping[int, Mapping[str, float]], metric: str) -> int:
    """Return how many of the evaluated rounds come after the best one."""
    best = find_best_round(rounds, metric) if rounds else 0
    return sum(round > best for round in rounds)


def is_lower_better(metric: str) -> bool:
    """Return True for a loss, an error or a distance, by the last word of its name: `eval_loss`, `mean_squared_error`.

    As in scikit-learn, `neg_mean_squared_error` is higher for a better model.
    """
    words = re.split(r"[^a-z0-9]+", metric.lower())
    return words[-1] in _ERROR_WORDS and words[0] != "neg"


def is_better(score: float, other: float, metric: str) -> bool:
    """Return True if the first score is better than the other. Values that are not finite are never better."""
    return _rank(score, metric) > _rank(other, metric)


def _rank(score: float, metric: str) -> float:
    """Return a number that is higher for a better score."""
    return (-score if is_lower_better(metric) else score) if math.isfinite(score) else -math.inf


def cost_to_reach(log: MetricsLog, primary_metric: str, targets: Sequence[float]) -> dict[str, dict[str, Row | None]]:
    """Return what it cost to reach each target on the global test set ("global") and on the clients' own ("local").

    The cost is counted from the start of the run to the first evaluation that reached the target, if there is one.
    """
    costs: dict[str, dict[str, Row | None]] = {}
    for key, who, split in (("global", "server", "global"), ("local", "clients", "test")):
        first = {f"{t:g}": find_first_reaching(log.rows, who, split, primary_metric, t) for t in targets}
        costs[key] = {target: None if row is None else _cost(row) for target, row in first.items()}
    return costs


def find_first_reaching(rows: Iterable[Row], who: str, split: str, metric: str, target: float) -> Row | None:
    """Return the first evaluation in which a metric was at least as good as the target; None if there is none."""
    scores = (row for row in rows if (row["who"], row["split"], row["name"]) == (who, split, metric))
    return next((row for row in scores if not is_better(target, row["value"], metric)), None)


def _cost(row: Row) -> Row:
    return {
        "round": row["round"],
        "payload_up": row["bytes_up"],
        "payload_down": row["bytes"] - row["bytes_up"],
        "network_seconds": row["network_seconds"],
    }


def mean_metrics(reports: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the unweighted mean over clients of each metric that all of them have."""
    rows = list(reports)
    names = [name for name in (rows[0] if rows else ()) if all(name in row for row in rows)]
    return {name: sum(row[name] for row in rows) / len(rows) for name in names}


def score_spread(scores: Sequence[float]) -> dict[str, float]:
    """Return the mean over clients, the standard deviation, and the mean of the worst tenth (at least one client)."""
    if not scores:
        return {}
    array = np.asarray(scores, np.float64)
    return {
        "mean": sum(sorted(scores)) / len(scores),
        "std": float(client_spread(array)),
        "worst_decile": float(worst_tenth(array)),
    }
