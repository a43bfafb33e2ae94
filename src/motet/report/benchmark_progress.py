"""Progress of a benchmark: how many runs are done, and how far the current run is."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from motet.report.number_text import format_duration
from motet.report.progress import format_scores
from motet.report.run_callback import RunCallback
from motet.transport.display_text import make_printable
from motet.transport.traffic import Traffic


class BenchmarkCallback(RunCallback):
    """Receives the events of a benchmark, and those of the runs in this process."""

    def on_benchmark_begin(self, total: int, done: int) -> None:
        """A benchmark starts, with `done` of its `total` runs complete."""

    def on_progress(self, done: int, seconds_left: float, message: str = "") -> None:
        """`done` runs are complete. `message` describes a run that just ended, if one did."""

    def on_benchmark_end(self) -> None:
        """The benchmark finished, failed or was interrupted."""


class BenchmarkLineProgress(BenchmarkCallback):
    """Prints one line per finished run."""

    def __init__(self, console: Console) -> None:
        self.console, self.total = console, 0

    def on_benchmark_begin(self, total: int, done: int) -> None:
        self.total = total

    def on_progress(self, done: int, seconds_left: float, message: str = "") -> None:
        if message:
            self.on_note(f"[{done}/{self.total}] {message}; {format_duration(seconds_left)} left")

    def on_note(self, text: str) -> None:
        self.console.print(make_printable(text), soft_wrap=True)


class BenchmarkBarProgress(BenchmarkCallback):
    """Shows a progress bar for all runs and one for the current run of this process."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description:42.42}", markup=False),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self.bars = Progress(*columns, console=console)

    def on_benchmark_begin(self, total: int, done: int) -> None:
        self.all_runs = self.bars.add_task("all runs", total=total, completed=done, text="")
        self.current_run = self.bars.add_task("", total=None, text="", visible=False)
        self.bars.start()

    def on_progress(self, done: int, seconds_left: float, message: str = "") -> None:
        self.bars.update(self.all_runs, completed=done, text=f"{format_duration(seconds_left)} left")
        if message:
            self.on_note(message)

    def on_benchmark_end(self) -> None:
        self.bars.stop()

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        self.bars.update(
            self.current_run, description=make_printable(name), total=rounds, completed=completed, text="", visible=True
        )

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        self.bars.update(self.current_run, completed=round, text=format_scores(scores, primary_metric, traffic))

    def on_note(self, text: str) -> None:
        self.bars.console.print(make_printable(text))

    def on_run_end(self) -> None:
        self.bars.update(self.current_run, visible=False)


def create_benchmark_progress(console: Console) -> BenchmarkCallback:
    """Return progress bars for a terminal and plain lines for a log."""
    return BenchmarkBarProgress(console) if console.is_terminal else BenchmarkLineProgress(console)
