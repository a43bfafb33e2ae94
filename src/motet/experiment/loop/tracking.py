"""Who else is told of a run while it goes on: TensorBoard, Weights & Biases, MLflow. A run needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import first_line
from motet.experiment.recipe.config_parsing import look_up
from motet.experiment.recipe.run_config import RunConfig
from motet.report.progress import RunCallback
from motet.report.trackers import Tracker, mlflow, tensorboard, wandb
from motet.transport.mailbox import Traffic

TRACKERS: dict[str, Callable[[str, Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": tensorboard.open_tracker,
    "wandb": wandb.open_tracker,
    "mlflow": mlflow.open_tracker,
}


@dataclass(frozen=True)
class Told:
    """A watch, and trackers that are told of every round besides. One that fails is told no more; the run goes on."""

    watch: RunCallback
    trackers: dict[str, Tracker]

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.watch.begin(name, rounds, done)

    def cohort(self, round: int, clients: int) -> None:
        self.watch.cohort(round, clients)

    def client(self, seen: int, asked: int) -> None:
        self.watch.client(seen, asked)

    def round(self, number: int, scores: Mapping[str, float], headline: str, traffic: Traffic) -> None:
        self.watch.round(number, scores, headline, traffic)
        moved = {"megabytes_up": traffic.payload_up / 1e6, "megabytes_down": traffic.payload_down / 1e6}
        for name, tracker in list(self.trackers.items()):
            try:
                tracker.log(number, {**scores, **moved})
            except Exception as error:  # whatever the network does to somebody else's package
                del self.trackers[name]
                self.watch.note(f"{name} is not told any more: {first_line(error)}")

    def note(self, text: str) -> None:
        self.watch.note(text)

    def end(self) -> None:
        self.watch.end()


def trackers_of(config: RunConfig) -> dict[str, Callable[[str, Path, Mapping[str, Any]], Tracker]]:
    return {name: look_up(TRACKERS, name, "track") for name in config.track}


@contextmanager
def tracked(config: RunConfig, folder: Path, watch: RunCallback) -> Iterator[RunCallback]:
    """The watch of a run that is tracked as its recipe says; trackers are closed whatever happens."""
    makers = trackers_of(config)
    told = Told(watch, {})
    try:
        for name, make in makers.items():
            told.trackers[name] = make(config.recipe, folder, config.to_dict())
        yield told if makers else watch
    finally:
        for name, tracker in told.trackers.items():
            try:
                tracker.close()
            except Exception as error:
                watch.note(f"{name} could not be told that the run has ended: {first_line(error)}")
