"""Progress as plain lines: one per round, with the time that is left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from motet.report.number_text import format_duration
from motet.report.progress import LineProgress
from motet.transport.traffic import Traffic


def show_rounds(completed: int, *rounds: int) -> list[str]:
    """Return the lines of a run of 4 rounds that starts, or resumes after `completed` rounds."""
    output = io.StringIO()
    progress = LineProgress(Console(file=output, width=200))
    progress.on_run_begin("toy", 4, completed)
    for round in rounds:
        progress.on_round_end(round, {"accuracy": 0.5}, "accuracy", Traffic())
    return output.getvalue().splitlines()


def test_each_round_has_a_line_with_its_score_and_the_time_left() -> None:
    first, second, third = show_rounds(0, 1, 2)
    assert first == "toy: 4 rounds"
    assert "round 1/4" in second and "accuracy 0.500" in second and second.endswith("s left")
    assert "round 2/4" in third


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (360_000, "100.0 h")],
)
def test_durations_are_in_seconds_minutes_or_hours(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_round_that_is_only_evaluated_after_a_resume_has_no_time_left() -> None:
    first, second, third = show_rounds(2, 2, 3)
    assert first == "toy: resuming after round 2 of 4"
    assert "round 2/4" in second and "left" not in second
    assert third.endswith("s left")
