"""What a person sees while a benchmark goes on: how far the whole grid is, and what is being trained now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from motet.report.progress import said_of
from motet.transport.mailbox import Traffic


class GridWatch(Protocol):
    """A watch over many runs. `stand` tells how many runs are done, and the seconds that are left."""

    def open(self, total: int, done: int) -> None: ...
    def stand(self, done: int, left: float, said: str = "") -> None: ...
    def close(self) -> None: ...

    def begin(self, name: str, rounds: int, done: int) -> None: ...
    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...
    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


class GridLines:
    """One line a run that ends."""

    def __init__(self, console: Console) -> None:
        self.console, self.total = console, 0

    def open(self, total: int, done: int) -> None:
        self.total = total

    def stand(self, done: int, left: float, said: str = "") -> None:
        if said:
            self.note(f"[{done}/{self.total}] {said}; {duration(left)} left")

    def close(self) -> None: ...
    def begin(self, name: str, rounds: int, done: int) -> None: ...
    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...
    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None: ...

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None: ...


class GridLive:
    """A bar for the whole grid, and one for the run of this process."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description:42.42}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.bars = Progress(*columns, console=console)

    def open(self, total: int, done: int) -> None:
        self.grid = self.bars.add_task("all runs", total=total, completed=done, said="")
        self.run = self.bars.add_task("", total=None, said="", visible=False)
        self.bars.start()

    def stand(self, done: int, left: float, said: str = "") -> None:
        self.bars.update(self.grid, completed=done, said=f"{duration(left)} left")
        if said:
            self.note(said)

    def close(self) -> None:
        self.bars.stop()

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.bars.update(self.run, description=name, total=rounds, completed=done, said="", visible=True)

    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...

    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None:
        self.bars.update(self.run, completed=number, said=said_of(scores, headline, traffic))

    def note(self, text: str) -> None:
        self.bars.console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        self.bars.update(self.run, visible=False)


def grid_watch_for(console: Console) -> GridWatch:
    return GridLive(console) if console.is_terminal else GridLines(console)


def duration(seconds: float) -> str:
    """About how long, in the unit that a person would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
