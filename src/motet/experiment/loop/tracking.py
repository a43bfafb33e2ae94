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
class TrackingCallback:
    """A callback, and trackers that are told of every round besides. One that fails is told no more; the run goes on."""

    callback: RunCallback
    trackers: dict[str, Tracker]

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        self.callback.on_run_begin(name, rounds, completed)

    def on_round_begin(self, round: int, cohort_size: int) -> None:
        self.callback.on_round_begin(round, cohort_size)

    def on_client_done(self, answered: int, expected: int) -> None:
        self.callback.on_client_done(answered, expected)

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        self.callback.on_round_end(round, scores, primary_metric, traffic)
        moved = {"megabytes_up": traffic.payload_up / 1e6, "megabytes_down": traffic.payload_down / 1e6}
        for name, tracker in list(self.trackers.items()):
            try:
                tracker.log(round, {**scores, **moved})
            except Exception as error:  # whatever the network does to somebody else's package
                del self.trackers[name]
                self.callback.on_note(f"{name} is not told any more: {first_line(error)}")

    def on_note(self, text: str) -> None:
        self.callback.on_note(text)

    def on_run_end(self) -> None:
        self.callback.on_run_end()


def find_trackers(config: RunConfig) -> dict[str, Callable[[str, Path, Mapping[str, Any]], Tracker]]:
    return {name: look_up(TRACKERS, name, "track") for name in config.track}


@contextmanager
def track_run(config: RunConfig, folder: Path, callback: RunCallback) -> Iterator[RunCallback]:
    """The callback of a run that is tracked as its recipe says; trackers are closed whatever happens."""
    makers = find_trackers(config)
    told = TrackingCallback(callback, {})
    try:
        for name, make in makers.items():
            told.trackers[name] = make(config.recipe, folder, config.to_dict())
        yield told if makers else callback
    finally:
        for name, tracker in told.trackers.items():
            try:
                tracker.close()
            except Exception as error:
                callback.on_note(f"{name} could not be told that the run has ended: {first_line(error)}")
