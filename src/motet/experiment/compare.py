"""Two runs side by side: what was set differently, what came out, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.experiment.record import read_items
from motet.experiment.session import load_config, load_summary
from motet.experiment.story import differences, flat
from motet.report.significance import paired_bootstrap


@dataclass(frozen=True)
class Compared:
    settings: list[tuple[str, str, str]]
    results: list[tuple[str, float | None, float | None]]
    verdict: str


def compared(first: Path, second: Path) -> Compared:
    settings = list(differences(flat(load_config(first).plain()), flat(load_config(second).plain())))
    ends = [_ended(folder) for folder in (first, second)]
    results = [(name, ends[0].get(name), ends[1].get(name)) for name in dict.fromkeys([*ends[0], *ends[1]])]
    return Compared(settings, results, _verdict(first, second))


def _ended(folder: Path) -> dict[str, float]:
    """The numbers with which a run ended."""
    summary = _summary(folder)
    found: dict[str, float] = {name: value for name, value in summary["final"].items() if isinstance(value, int | float)}
    found |= {f"best {summary['headline']}": summary["best"][summary["headline"]]} if summary["best"] else {}
    if summary["headline"] in (summary.get("dev_best") or {}).get("test", {}):
        found[f"{summary['headline']} of the best round on dev"] = summary["dev_best"]["test"][summary["headline"]]
    found |= {f"clients' own, {name.replace('_', ' ')}": value for name, value in summary["clients_final"].items()}
    moved = summary["bytes"]
    return found | {"MB up": moved["payload_up"] / 1e6, "MB down": moved["payload_down"] / 1e6, "seconds": summary["seconds"]}


def _summary(folder: Path) -> dict[str, Any]:
    summary = load_summary(folder)
    if summary is None:
        raise ConfigError(f"'{folder}' is not finished; go on with it first: motet resume {folder}")
    return summary


def _verdict(first: Path, second: Path) -> str:
    """Item by item, where both were judged on the same items."""
    headlines, keys = zip(*((s["headline"], s.get("items")) for s in map(_summary, (first, second))), strict=True)
    if headlines[0] != headlines[1] or keys[0] != keys[1] or keys[0] is None:
        return (
            "They were judged on different test items or by different metrics, so the numbers cannot be compared item by item."
        )
    items = [read_items(folder) for folder in (first, second)]
    shared = [owner for owner in items[0] if owner in items[1] and len(items[0][owner]) == len(items[1][owner])]
    whole = [""] if "" in shared else shared
    if not whole:
        return "No scores of single test items are kept for both (set evaluation.items=true for clients' own test sets)."
    one, two = (np.concatenate([found[owner] for owner in whole]) for found in items)
    strata = np.concatenate([np.full(len(items[0][owner]), i) for i, owner in enumerate(whole)])
    found = paired_bootstrap(two, one, strata=strata)
    sure = "more than chance" if found.p < 0.05 else "not told apart from chance"
    return (
        f"The second minus the first, item by item: {found.difference:+.4f} "
        f"(95 % interval {found.low:+.4f} to {found.high:+.4f}), p = {found.p:.4f} over {len(one):,} test items: {sure}."
    )
