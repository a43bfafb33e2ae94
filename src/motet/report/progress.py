"""Progress of a run: a live display for terminals and plain lines for everything else."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from motet.report.number_text import count_of, format_duration
from motet.report.run_callback import RunCallback
from motet.transport.display_text import make_printable
from motet.transport.traffic import Traffic


class LineProgress(RunCallback):
    """Prints one line per round."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        self.name, self.rounds, self.first, self.start_time = name, rounds, completed, time.monotonic()
        resumed = f"{name}: resuming after round {completed} of {rounds}"
        self.on_note(resumed if completed else f"{name}: {count_of(rounds, 'round')}")

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        text = f"{self.name}  round {round}/{self.rounds}  {format_scores(scores, primary_metric, traffic)}"
        rounds_run = round - self.first  # 0: a resumed run evaluates a round that an earlier process has run
        if rounds_run:
            seconds_left = (time.monotonic() - self.start_time) / rounds_run * (self.rounds - round)
            text += f"  {format_duration(seconds_left)} left"
        self.on_note(text)

    def on_note(self, text: str) -> None:
        self.console.print(make_printable(text), soft_wrap=True)


class BarProgress(RunCallback):
    """Shows a progress bar for the rounds and one for the clients of the current round."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        columns = (
            TextColumn("{task.description:14}", markup=False),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self.bars = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=False)
        self.rounds = self.bars.add_task(make_printable(name), total=rounds, completed=completed, text="")
        self.clients = self.bars.add_task("  clients", total=None, text="")
        self.bars.start()

    def on_round_begin(self, round: int, cohort_size: int) -> None:
        self.bars.reset(self.clients, total=cohort_size, text=f"round {round}")

    def on_client_done(self, answered: int, expected: int) -> None:
        self.bars.update(self.clients, completed=answered, total=expected)

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        self.bars.update(self.rounds, completed=round, text=format_scores(scores, primary_metric, traffic))

    def on_note(self, text: str) -> None:
        self.console.print(make_printable(text))

    def on_run_end(self) -> None:
        self.bars.update(self.clients, visible=False)
        self.bars.stop()


def create_progress(console: Console) -> RunCallback:
    """Return progress bars for a terminal and plain lines for a log."""
    return BarProgress(console) if console.is_terminal else LineProgress(console)


def format_scores(scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> str:
    loss = f"loss {scores['loss']:.3f}  " if "loss" in scores else ""
    score = f"{primary_metric} {scores[primary_metric]:.3f}  " if primary_metric in scores else ""
    epsilon = f"ε {scores['epsilon']:.2f}  " if "epsilon" in scores else ""
    return f"{loss}{score}{epsilon}{format_megabytes(traffic.payload_up + traffic.payload_down)} MB"


def format_megabytes(count: float) -> str:
    """Format bytes as megabytes with one decimal, or with three significant digits below 1 MB."""
    return f"{count / 1e6:.1f}" if count >= 1e6 else f"{count / 1e6:.3g}"
