"""The content of a report's page from metrics.jsonl: curves, scores of clients, and notes of the algorithm."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any

from motet.experiment.loop.metrics_log import EVALUATION_SPLITS, INITIAL_SPLIT, Row, is_client_row

MAX_POINTS = 400  # of a curve; more cannot be seen
CLIENT_MEAN = ", mean over clients"
EPSILON_CURVE = "ε spent"

Curves = dict[str, list[list[float]]]


class PageMetrics:
    """Rows in the form that the page draws. The page adds new points and notes to those that it has.

    Points of curves are [round, value, seconds, bytes]. Notes are name -> round -> value; the values of notes on single
    clients are dictionaries: client -> value.
    """

    def __init__(self, rows: Iterable[Row], primary_metric: str | None) -> None:
        self.primary_metric = primary_metric
        self.round, self.seconds, self.bytes, self.bytes_up = 0, 0.0, 0, 0
        self.curves: Curves = defaultdict(list)
        self.client_scores: dict[str, float] = {}
        self.notes: dict[str, dict[str, Any]] = defaultdict(dict)
        for row in rows:
            self._add(row)

    def _add(self, row: Row) -> None:
        if row["split"] == "note":
            self.notes[row["name"]][str(row["round"])] = row["value"]
        elif not is_client_row(row):
            self._add_point(row)
        elif row["split"] not in EVALUATION_SPLITS:
            self._add_client_note(row)
        elif row["split"] in ("test", "common") and row["name"] == self.primary_metric:
            self.client_scores[row["who"]] = row["value"]

    def _add_client_note(self, row: Row) -> None:
        values, round = self.notes[row["name"]], str(row["round"])
        if not isinstance(values.get(round), dict):  # no client's note of this round yet; the server may have one
            values[round] = {}
        values[round][row["who"]] = row["value"]

    def _add_point(self, row: Row) -> None:
        if not isinstance(row["value"], int | float):
            return
        self.round, self.seconds = row["round"], row.get("seconds", 0.0)
        self.bytes, self.bytes_up = row.get("bytes", 0), row.get("bytes_up", 0)
        if math.isfinite(row["value"]):  # a run that diverged has curves that end
            self.curves[_curve_name(row)].append([self.round, round(row["value"], 5), self.seconds, self.bytes])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the page."""
        return {
            "curves": {name: _thin_out(points) for name, points in self.curves.items()},
            "client_scores": self.client_scores,
            "notes": dict(self.notes),
        }


def find_first_metric(rows: Iterable[Row]) -> str | None:
    """Return the primary metric of a run without a summary: it comes first in every evaluation."""
    return next((row["name"] for row in rows if row["split"] in EVALUATION_SPLITS), None)


def _curve_name(row: Row) -> str:
    split = f"{row['split']}{CLIENT_MEAN}" if row["who"] == "clients" else row["split"]
    if split in ("global", INITIAL_SPLIT):
        return str(row["name"])
    return EPSILON_CURVE if row["name"] == "epsilon" else f"{row['name']} on {split}"


def _thin_out(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= MAX_POINTS:
        return points
    step = len(points) / MAX_POINTS
    return list(chain((points[int(i * step)] for i in range(MAX_POINTS)), points[-1:]))
