"""Report a run to experiment trackers: TensorBoard, Weights & Biases, MLflow. A run works without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import first_line
from motet.core.plugins import Registry
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_callback import RunCallback
from motet.report.trackers import Tracker, mlflow, tensorboard, wandb
from motet.transport.traffic import Traffic

OpenTracker = Callable[[str, Path, Mapping[str, Any]], Tracker]

TRACKERS: dict[str, OpenTracker] = {
    "tensorboard": tensorboard.open_tracker,
    "wandb": wandb.open_tracker,
    "mlflow": mlflow.open_tracker,
}
TRACKER_REGISTRY = Registry("motet.trackers", TRACKERS)


@dataclass(frozen=True)
class TrackingCallback(RunCallback):
    """Passes all events to `callback`, and the scores of each round to trackers. A tracker that fails is dropped."""

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
        megabytes = {"megabytes_up": traffic.payload_up / 1e6, "megabytes_down": traffic.payload_down / 1e6}
        for name, tracker in list(self.trackers.items()):
            try:
                tracker.log(round, {**scores, **megabytes})
            except Exception as error:  # a tracker's network may fail in any way
                del self.trackers[name]
                self.callback.on_note(f"{name} failed and gets no further rounds: {first_line(error)}")

    def on_note(self, text: str) -> None:
        self.callback.on_note(text)

    def on_run_end(self) -> None:
        self.callback.on_run_end()


def find_trackers(config: RunConfig) -> dict[str, OpenTracker]:
    """Return the trackers that a recipe names; an unknown name is an error."""
    return {name: TRACKER_REGISTRY.get(name, "track") for name in config.track}


@contextmanager
def track_run(config: RunConfig, folder: Path, callback: RunCallback) -> Iterator[RunCallback]:
    """Yield a callback that also reports to the recipe's trackers, and close them at the end."""
    trackers: dict[str, Tracker] = {}
    try:
        for name, open_tracker in find_trackers(config).items():
            trackers[name] = open_tracker(config.recipe, folder, config.to_dict())
        yield TrackingCallback(callback, trackers) if trackers else callback
    finally:
        for name, tracker in trackers.items():
            try:
                tracker.close()
            except Exception as error:
                callback.on_note(f"{name} could not be closed at the end of the run: {first_line(error)}")
