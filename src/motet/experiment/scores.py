"""From many clients' metrics to the few numbers a run is spoken of by."""

from __future__ import annotations

from collections.abc import Mapping

from motet.core.script import ClientId
from motet.experiment.plan import Judged, Participants
from motet.experiment.record import Record


def group_means(federation: Participants, reports: Mapping[ClientId, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each group's metrics: the mean over those of its clients that reported."""
    found: dict[str, list[dict[str, float]]] = {}
    for client, scores in reports.items():
        group = federation.group_of(client)
        known = {name: scores[name] for name in group.task.measures}
        found.setdefault(group.name, []).append({**known, "score": scores[group.task.headline]})
    return {name: {m: sum(r[m] for r in rows) / len(rows) for m in rows[0]} for name, rows in found.items()}


def overall(task: Judged, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean over groups, of what all of them are judged by."""
    return {m: sum(g[m] for g in groups.values()) / len(groups) for m in task.measures if groups}


def final_and_best(record: Record, headline: str) -> tuple[dict[str, float], dict[str, float]]:
    """What the server saw last, and in the round that was best by the headline."""
    by_round: dict[int, dict[str, float]] = {}
    for row in record.rows:
        if row["who"] == "server" and row["split"] == "global":
            by_round.setdefault(row["round"], {})[row["name"]] = row["value"]
    if not by_round:
        return {}, {}
    best = max(by_round, key=lambda r: (by_round[r].get(headline, float("-inf")), -r))
    return by_round[max(by_round)], by_round[best]
