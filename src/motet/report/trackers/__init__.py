"""Trackers of runs, one small file each; each imports its package only when a recipe asks for it (`track: [tensorboard]`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Told the numbers of every round, and when there are no more."""

    def log(self, round: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...
