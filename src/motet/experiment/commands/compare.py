"""Two runs side by side: what was set differently, what came out, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.experiment.commands.report_data import diff_settings, flatten_settings
from motet.experiment.commands.run_folder import load_config, load_summary
from motet.experiment.loop.example_scores import read_example_scores
from motet.report.significance import paired_bootstrap
from motet.tasks.sufficient_statistics import StatisticsMetric, metric_from_statistics


@dataclass(frozen=True)
class RunComparison:
    settings: list[tuple[str, str, str]]
    results: list[tuple[str, float | None, float | None]]
    verdict: str


def compare_runs(first: Path, second: Path) -> RunComparison:
    settings = list(
        diff_settings(flatten_settings(load_config(first).to_dict()), flatten_settings(load_config(second).to_dict()))
    )
    ends = [_ended(folder) for folder in (first, second)]
    results = [(name, ends[0].get(name), ends[1].get(name)) for name in dict.fromkeys([*ends[0], *ends[1]])]
    return RunComparison(settings, results, _verdict(first, second))


def _ended(folder: Path) -> dict[str, float]:
    """The numbers with which a run ended."""
    summary = _summary(folder)
    found: dict[str, float] = {
        name: value for name, value in summary["final"].items() if isinstance(value, int | float)
    }
    found |= {f"best {summary['headline']}": summary["best"][summary["headline"]]} if summary["best"] else {}
    if summary["headline"] in (summary.get("dev_best") or {}).get("test", {}):
        found[f"{summary['headline']} of the best round on dev"] = summary["dev_best"]["test"][summary["headline"]]
    found |= {f"clients' own, {name.replace('_', ' ')}": value for name, value in summary["clients_final"].items()}
    moved = summary["bytes"]
    return found | {
        "MB up": moved["payload_up"] / 1e6,
        "MB down": moved["payload_down"] / 1e6,
        "seconds": summary["seconds"],
    }


def _summary(folder: Path) -> dict[str, Any]:
    summary = load_summary(folder)
    if summary is None:
        raise ConfigError(f"'{folder}' is not finished; go on with it first: motet resume {folder}")
    return summary


def _verdict(first: Path, second: Path) -> str:
    """Item by item, where both were judged on the same items."""
    headlines, keys = zip(*((s["headline"], s.get("items")) for s in map(_summary, (first, second))), strict=True)
    if headlines[0] != headlines[1] or keys[0] != keys[1] or keys[0] is None:
        return "They were judged on different test items or by different metrics, so the numbers cannot be compared item by item."
    items = [read_example_scores(folder) for folder in (first, second)]
    lengths = [{owner: len(rows) for owner, rows in found.items() if len(rows)} for found in items]
    shared = [owner for owner, length in lengths[0].items() if lengths[1].get(owner) == length]
    whole = [""] if "" in shared else shared
    if not whole:
        return "No scores of single test items are kept for both (set evaluation.save_example_scores=true for clients' own test sets)."
    strata = np.concatenate([np.full(len(items[0][owner]), i) for i, owner in enumerate(whole)])
    statistic = _statistic(headlines[0], [found[owner] for found in items for owner in whole])
    columns = slice(1, None) if statistic else slice(0, 1)
    one, two = (np.concatenate([found[owner][:, columns] for owner in whole]) for found in items)
    found = paired_bootstrap(two, one, strata=strata, statistic=statistic)
    sure = "more than chance" if found.p < 0.05 else "not told apart from chance"
    return (
        f"The second minus the first, {headlines[0]} over the same items: {found.difference:+.4f} "
        f"(95 % interval {found.low:+.4f} to {found.high:+.4f}), p = {found.p:.4f} over {len(one):,} test items: {sure}."
    )


def _statistic(primary_metric: str, items: Sequence[np.ndarray]) -> StatisticsMetric | None:
    """How the headline follows from tallies; None where it is just the mean of the scores, or all there is."""
    widths = {rows.shape[1] - 1 for rows in items}
    found = metric_from_statistics(primary_metric, widths.pop()) if len(widths) == 1 else None
    means = [rows.mean(0, dtype=np.float64) for rows in items]
    return found if found and not all(np.isclose(found(m[1:]), m[0], atol=1e-6) for m in means) else None
