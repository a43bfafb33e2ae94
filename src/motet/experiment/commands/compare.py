"""`motet compare`: what differs between two runs in settings and results, and whether the difference is significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.experiment.commands.report_data import diff_settings, flatten_settings
from motet.experiment.commands.run_folder import load_config, load_summary, resume_command
from motet.experiment.loop.example_scores import read_example_scores
from motet.report.significance import paired_bootstrap
from motet.tasks.sufficient_statistics import StatisticsMetric, metric_from_statistics

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class RunComparison:
    """Settings that differ, with both values; results of both runs; and a sentence on significance."""

    settings: list[tuple[str, str, str]]
    results: list[tuple[str, float | None, float | None]]
    verdict: str


def compare_runs(first: Path, second: Path) -> RunComparison:
    settings = [flatten_settings(load_config(folder).to_dict()) for folder in (first, second)]
    summaries = [_load_finished_summary(folder) for folder in (first, second)]
    results = [_collect_results(summary) for summary in summaries]
    names = dict.fromkeys([*results[0], *results[1]])
    return RunComparison(
        settings=list(diff_settings(*settings)),
        results=[(name, results[0].get(name), results[1].get(name)) for name in names],
        verdict=_test_significance((first, second), summaries),
    )


def is_personal(summary: Mapping[str, Any]) -> bool:
    """Return True if a run trains personal models, which are compared on the clients' own test sets."""
    return summary.get("headline_split") == "local"


def _load_finished_summary(folder: Path) -> dict[str, Any]:
    summary = load_summary(folder)
    if summary is None:
        raise ConfigError(f"'{folder}' is not finished; expected a finished run. Finish it: {resume_command(folder)}")
    return summary


def _collect_results(summary: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a summary by name."""
    primary_metric = summary["headline"]
    results = {name: value for name, value in summary["final"].items() if isinstance(value, int | float)}
    if summary["best"]:
        results[f"best {primary_metric}"] = summary["best"][primary_metric]
    best_dev_round = summary.get("dev_best") or {}
    if primary_metric in best_dev_round.get("test", {}):
        results[f"{primary_metric} of the best round on dev"] = best_dev_round["test"][primary_metric]
    local = {f"clients' own, {name.replace('_', ' ')}": value for name, value in summary["clients_final"].items()}
    results = {**local, **results} if is_personal(summary) else {**results, **local}
    results["MB up"] = summary["bytes"]["payload_up"] / 1e6
    results["MB down"] = summary["bytes"]["payload_down"] / 1e6
    results["seconds"] = summary["seconds"]
    return results


def _test_significance(folders: Sequence[Path], summaries: Sequence[dict[str, Any]]) -> str:
    """Compare the runs example by example, if both were evaluated on the same examples."""
    metrics, examples = ([summary.get(key) for summary in summaries] for key in ("headline", "items"))
    if metrics[0] != metrics[1] or examples[0] != examples[1] or examples[0] is None:
        return (
            "The runs have different test examples or primary metrics, so they cannot be compared example by example."
        )
    scores = [read_example_scores(folder) for folder in folders]
    sizes = [{owner: len(rows) for owner, rows in run.items() if len(rows)} for run in scores]
    common = [owner for owner, size in sizes[0].items() if sizes[1].get(owner) == size]
    is_local = any(map(is_personal, summaries))  # a personal method is deployed on the texts of each client
    owners = [owner for owner in common if owner] if is_local or "" not in common else [""]  # "": global test set
    if not owners:
        return "Per-example scores of both runs are needed; set evaluation.save_example_scores=true."
    metric = _find_statistics_metric(str(metrics[0]), [run[owner] for run in scores for owner in owners])
    columns = slice(1, None) if metric else slice(0, 1)
    first, second = (np.concatenate([run[owner][:, columns] for owner in owners]) for run in scores)
    strata = np.concatenate([np.full(len(scores[0][owner]), i) for i, owner in enumerate(owners)])
    test = paired_bootstrap(second, first, strata=strata, statistic=metric)
    conclusion = "significant" if test.p < SIGNIFICANCE_LEVEL else "not significant"
    where = "clients' own test examples" if owners != [""] else "the same examples"
    return (
        f"Second run minus first, {metrics[0]} on {where}: {test.difference:+.4f} "
        f"(95% interval {test.low:+.4f} to {test.high:+.4f}), p = {test.p:.4f} over {len(first):,} examples: "
        f"{conclusion}."
    )


def _find_statistics_metric(metric: str, scores: Sequence[np.ndarray]) -> StatisticsMetric | None:
    """Return how the metric follows from sufficient statistics; None if it is the mean of the scores."""
    widths = {rows.shape[1] - 1 for rows in scores}
    if len(widths) != 1:
        return None
    compute = metric_from_statistics(metric, widths.pop())
    means = [(rows.mean(0, dtype=np.float64), len(rows)) for rows in scores]
    if compute is None or all(np.isclose(compute(mean[1:], count), mean[0], atol=1e-6) for mean, count in means):
        return None
    return compute
