"""Experiment trackers: what they receive, and what happens if they fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from motet.core.errors import ConfigError
from motet.experiment.loop.tracking import track_run
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_callback import RunCallback
from motet.transport.traffic import Traffic

ROUNDS = ((1, {"accuracy": 0.5}), (2, {"accuracy": 0.75}))


def track_two_rounds(folder: Path, *names: str) -> None:
    config = RunConfig.from_settings("mine", {"track": list(names)})
    with track_run(config, folder, RunCallback()) as callback:
        for round, scores in ROUNDS:
            callback.on_round_end(round, scores, "accuracy", Traffic(payload_up=2_000_000 * round))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes of the run."""
    texts: list[str] = []
    monkeypatch.setattr(RunCallback, "on_note", lambda _, text: texts.append(text))
    return texts


class FakeClient:
    """Stands in for the clients of Weights & Biases and MLflow, and records what it receives."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.is_closed = False

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values["accuracy"]))

    def finish(self) -> None:
        self.is_closed = True

    def log_metric(self, run: str, name: str, value: float, step: int) -> None:
        if name == "accuracy":
            self.logged.append((step, value))

    def log_param(self, run: str, name: str, value: str) -> None:
        assert len(value) <= 500

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        assert experiment == "7"
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def set_terminated(self, run: str) -> None:
        self.is_closed = True


class FakeMlflowError(Exception):
    """Stands in for MlflowException."""


def install_fake_wandb(monkeypatch: pytest.MonkeyPatch, client: FakeClient) -> None:
    module = ModuleType("wandb")
    module.init = lambda **options: client if options["resume"] == "allow" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)


def install_fake_mlflow(monkeypatch: pytest.MonkeyPatch, create_client: Callable[[], Any]) -> None:
    mlflow, tracking, exceptions = (ModuleType(name) for name in ("mlflow", "mlflow.tracking", "mlflow.exceptions"))
    tracking.MlflowClient, exceptions.MlflowException = create_client, FakeMlflowError  # type: ignore[attr-defined]
    for module in (mlflow, tracking, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_run_without_trackers_keeps_its_callback(tmp_path: Path) -> None:
    callback = RunCallback()
    with track_run(RunConfig.from_settings("mine", {}), tmp_path, callback) as same:
        assert same is callback


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    track_two_rounds(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("accuracy")] == [(1, 0.5), (2, 0.75)]
    assert [e.value for e in events.Scalars("megabytes_up")] == [2.0, 4.0]


def test_wandb_receives_every_round_and_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    install_fake_wandb(monkeypatch, client)
    track_two_rounds(tmp_path, "wandb")
    assert client.logged == [(1, 0.5), (2, 0.75)]
    assert client.is_closed


def test_mlflow_receives_every_round_and_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    install_fake_mlflow(monkeypatch, lambda: client)
    track_two_rounds(tmp_path, "mlflow")
    assert client.logged == [(1, 0.5), (2, 0.75)]
    assert client.is_closed


def test_an_mlflow_store_that_does_not_open_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_open() -> Any:
        raise FakeMlflowError("got unsupported URI 'sqlite:///mlflow.db'\nsee the documentation")

    install_fake_mlflow(monkeypatch, fail_to_open)
    message = r"logging to MLflow failed: got unsupported URI.*Set MLFLOW_TRACKING_URI.*pip install mlflow"
    with pytest.raises(ConfigError, match=message):
        track_two_rounds(tmp_path, "mlflow")


def test_a_tracker_that_fails_is_dropped_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    client = FakeClient()

    def fail_to_log(values: dict[str, float], step: int) -> None:
        client.logged.append(step)
        raise ConnectionError("the server has gone away")

    monkeypatch.setattr(client, "log", fail_to_log)
    install_fake_wandb(monkeypatch, client)
    track_two_rounds(tmp_path, "wandb")
    assert client.logged == [1]
    (note,) = notes
    assert note.startswith("wandb")
    assert "the server has gone away" in note


def test_a_tracker_that_does_not_close_is_reported_and_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    first, second = FakeClient(), FakeClient()

    def fail_to_finish() -> None:
        raise TimeoutError

    monkeypatch.setattr(first, "finish", fail_to_finish)
    install_fake_wandb(monkeypatch, first)
    install_fake_mlflow(monkeypatch, lambda: second)
    track_two_rounds(tmp_path, "wandb", "mlflow")
    (note,) = notes
    assert note.startswith("wandb")
    assert "TimeoutError" in note
    assert second.is_closed


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_reported_with_the_install_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"{name} is not installed. Run: pip install '{name}[^' ]*', or"):
        track_two_rounds(tmp_path, name)
