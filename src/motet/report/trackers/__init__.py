"""Experiment trackers. Each is imported only if a recipe uses it (`track: [tensorboard]`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Logs the metrics of a run."""

    def log(self, round: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...
