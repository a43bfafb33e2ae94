"""What a person sees while a run goes on: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from motet.transport.mailbox import Traffic


class RunCallback(Protocol):
    """Told what happens; must not change anything."""

    def begin(self, name: str, rounds: int, done: int) -> None: ...
    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...
    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


class SilentProgress:
    def begin(self, name: str, rounds: int, done: int) -> None: ...
    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...
    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


class Lines:
    """One line a round."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.name, self.rounds, self.first, self.began = name, rounds, done, time.monotonic()
        self.note(f"{name}: going on after round {done} of {rounds}" if done else f"{name}: {rounds} rounds")

    def cohort(self, round: int, clients: int) -> None: ...
    def client(self, seen: int, asked: int) -> None: ...

    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None:
        left = (time.monotonic() - self.began) / (number - self.first) * (self.rounds - number)
        said = said_of(scores, headline, traffic)
        self.note(f"{self.name}  round {number}/{self.rounds}  {said}  {left:.0f} s left")

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None: ...


class Live:
    """A bar for the rounds and one for the clients of this round."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, name: str, rounds: int, done: int) -> None:
        columns = (
            TextColumn("{task.description:14}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.bars = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=False)
        self.rounds = self.bars.add_task(name, total=rounds, completed=done, said="")
        self.clients = self.bars.add_task("  clients", total=None, said="")
        self.bars.start()

    def cohort(self, round: int, clients: int) -> None:
        self.bars.reset(self.clients, total=clients, said=f"round {round}")

    def client(self, seen: int, asked: int) -> None:
        self.bars.update(self.clients, completed=seen, total=asked)

    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None:
        self.bars.update(self.rounds, completed=number, said=said_of(scores, headline, traffic))

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        self.bars.update(self.clients, visible=False)
        self.bars.stop()


def said_of(scores: Mapping[str, float], headline: str, traffic: Traffic) -> str:
    loss = f"loss {scores['loss']:.3f}  " if "loss" in scores else ""
    score = f"{headline} {scores[headline]:.3f}  " if headline in scores else ""
    spent = f"ε {scores['epsilon']:.2f}  " if "epsilon" in scores else ""
    return f"{loss}{score}{spent}{megabytes(traffic.payload_up + traffic.payload_down)} MB"


def megabytes(count: float) -> str:
    """To one decimal, and what is less than one to three digits: opinions on texts are small beside models."""
    return f"{count / 1e6:.1f}" if count >= 1e6 else f"{count / 1e6:.3g}"


def watch_for(console: Console) -> RunCallback:
    return Live(console) if console.is_terminal else Lines(console)
