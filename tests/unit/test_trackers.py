"""Runs tell others of their rounds, if they are asked to."""

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
from motet.report.progress import SilentProgress
from motet.transport.mailbox import Traffic

ROUNDS = ((1, {"accuracy": 0.5}), (2, {"accuracy": 0.75}))


def tell(name: str, folder: Path, *others: str) -> None:
    config = RunConfig.from_settings("mine", {"track": [name, *others]})
    with track_run(config, folder, SilentProgress()) as callback:
        for number, scores in ROUNDS:
            callback.on_round_end(number, scores, "accuracy", Traffic(payload_up=2_000_000 * number))


def test_a_run_that_is_not_tracked_keeps_its_own_watch(tmp_path: Path) -> None:
    callback = SilentProgress()
    with track_run(RunConfig.from_settings("mine", {}), tmp_path, callback) as same:
        assert same is callback


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tell("tensorboard", tmp_path)
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("accuracy")] == [(1, 0.5), (2, 0.75)]
    assert [e.value for e in found.Scalars("megabytes_up")] == [2.0, 4.0]


class Spoken:
    """Stands for a package that is not here: it keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ended = False

    def log(self, values: dict[str, float], step: int) -> None:
        self.heard.append((step, values["accuracy"]))

    def finish(self) -> None:
        self.ended = True

    def log_metric(self, run: str, name: str, value: float, step: int) -> None:
        if name == "accuracy":
            self.heard.append((step, value))

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
        self.ended = True


def test_weights_and_biases_is_told_every_round_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken, module = Spoken(), ModuleType("wandb")
    module.init = lambda **options: spoken if options["resume"] == "allow" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    tell("wandb", tmp_path)
    assert spoken.heard == [(1, 0.5), (2, 0.75)]
    assert spoken.ended


def test_mlflow_is_told_every_round_and_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = Spoken()
    stand_in_for_mlflow(monkeypatch, lambda: spoken)
    tell("mlflow", tmp_path)
    assert spoken.heard == [(1, 0.5), (2, 0.75)]
    assert spoken.ended


class UnsupportedError(Exception):
    """Stands for MLflow's own error."""


def stand_in_for_mlflow(monkeypatch: pytest.MonkeyPatch, client: Callable[[], Any]) -> None:
    module, tracking, exceptions = (ModuleType(name) for name in ("mlflow", "mlflow.tracking", "mlflow.exceptions"))
    tracking.MlflowClient, exceptions.MlflowException = client, UnsupportedError  # type: ignore[attr-defined]
    for stand_in in (module, tracking, exceptions):
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)


def test_a_store_that_mlflow_cannot_open_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Any:
        raise UnsupportedError("got unsupported URI 'sqlite:///mlflow.db'\nsee the documentation")

    stand_in_for_mlflow(monkeypatch, refused)
    with pytest.raises(
        ConfigError, match=r"cannot be written to \(got unsupported URI.*; set MLFLOW_TRACKING_URI.*pip install mlflow"
    ):
        tell("mlflow", tmp_path)


def test_a_tracker_that_fails_is_told_no_more_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken, module, notes = Spoken(), ModuleType("wandb"), list[str]()

    def log(values: dict[str, float], step: int) -> None:
        spoken.heard.append(step)
        raise ConnectionError("the server has gone away")

    monkeypatch.setattr(spoken, "log", log)
    monkeypatch.setattr(SilentProgress, "on_note", lambda _, text: notes.append(text))
    module.init = lambda **options: spoken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    tell("wandb", tmp_path)
    assert spoken.heard == [1]
    assert notes == ["wandb failed and gets no further rounds: the server has gone away"]


def test_what_cannot_be_closed_is_said_and_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, notes = Spoken(), Spoken(), list[str]()

    def finish() -> None:
        raise TimeoutError

    monkeypatch.setattr(first, "finish", finish)
    monkeypatch.setattr(SilentProgress, "on_note", lambda _, text: notes.append(text))
    module = ModuleType("wandb")
    module.init = lambda **options: first  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    stand_in_for_mlflow(monkeypatch, lambda: second)
    tell("wandb", tmp_path, "mlflow")
    assert notes == ["wandb could not be closed at the end of the run: TimeoutError"]
    assert second.ended


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named_with_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"{name} is not installed; run: pip install 'motet\[track\]'"):
        tell(name, tmp_path)
