"""The events of a run, for what shows its progress or records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # programs that only log need not load it
    from motet.transport.traffic import Traffic


class RunCallback:
    """Receives the events of a run, and ignores those that a subclass does not define. It must not change the run."""

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        """A run starts, or resumes after `completed` rounds."""

    def on_round_begin(self, round: int, cohort_size: int) -> None:
        """A round starts. Rounds count from 1."""

    def on_client_done(self, answered: int, expected: int) -> None:
        """A client replied: `answered` of the `expected` replies of the current exchange are in."""

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        """A round is complete. `scores` is empty if the round was not evaluated; `traffic` is the total so far."""

    def on_note(self, text: str) -> None:
        """The run has a message for the user."""

    def on_run_end(self) -> None:
        """The run finished, failed or was interrupted."""
