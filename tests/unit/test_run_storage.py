"""When a run saves a checkpoint, and how much client state stays in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from motet.core.errors import RunError
from motet.core.params import Params
from motet.experiment.loop import run_storage
from motet.experiment.loop.checkpoint import RunProgress
from motet.experiment.loop.run_storage import RunStorage, StateBudget, state_budget
from motet.experiment.recipe.run_config import CheckpointConfig
from motet.transport.traffic import Traffic


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_storage, "time", clock)
    return clock


def make_storage(folder: Path | None, digest: str = "digest", **options: Any) -> RunStorage:
    return RunStorage(folder, CheckpointConfig(**options), digest, StateBudget(device=2**20, host=0))


def make_progress(rounds: int) -> RunProgress:
    return RunProgress(rounds=rounds, state=None, traffic=Traffic(), noisy_sums=0, sums_by_client={})


@pytest.mark.parametrize(
    ("seconds", "save_seconds", "since_last", "is_due"),
    [
        (60, 0.1, 61, True),
        (60, 0.1, 59, False),
        (60, 10.0, 61, False),  # saving takes at most a twentieth of the time
        (60, 10.0, 201, True),
        (0, 10.0, 1, True),  # after every round
    ],
)
def test_a_checkpoint_is_due_when_saving_is_worth_its_time(
    seconds: float,
    save_seconds: float,
    since_last: float,
    is_due: bool,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = make_storage(tmp_path, seconds=seconds)

    def save_slowly(*_: object) -> None:
        clock.now += save_seconds

    monkeypatch.setattr(run_storage, "save_checkpoint", save_slowly)
    storage.save(make_progress(1))
    clock.now += since_last
    assert storage.is_save_due is is_due


def test_resuming_drops_metrics_that_are_newer_than_the_checkpoint(tmp_path: Path) -> None:
    storage = make_storage(tmp_path)
    storage.metrics.add(1, "server", "global", {"accuracy": 0.5}, Traffic())
    storage.mark_complete([])
    storage.metrics.add(2, "server", "global", {"accuracy": 0.6}, Traffic())
    storage.save(make_progress(1))
    resumed = make_storage(tmp_path)
    checkpoint = resumed.resume()
    assert checkpoint is not None
    assert checkpoint.progress.rounds == 1
    assert resumed.metrics.curve("accuracy") == [(1, 0.5)]


def test_restoring_leaves_the_metrics_as_they_are(tmp_path: Path) -> None:
    storage = make_storage(tmp_path)
    storage.metrics.add(1, "server", "global", {"accuracy": 0.5}, Traffic())
    storage.save(make_progress(1))
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    assert make_storage(tmp_path).restore() is not None
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics


def test_reading_a_run_in_progress_deletes_none_of_its_files(tmp_path: Path) -> None:
    storage = make_storage(tmp_path)
    storage.client_states.put("fedavg", "north", torch.ones(3))
    storage.client_states.commit_round()
    storage.save(make_progress(1))
    newer = tmp_path / "checkpoint" / "client_states" / "00000009-of-the-round-in-progress"
    newer.touch()
    assert make_storage(tmp_path).restore() is not None
    assert newer.exists()
    assert make_storage(tmp_path).resume() is not None
    assert not newer.exists()


def test_client_states_of_a_checkpoint_come_back(tmp_path: Path) -> None:
    storage = make_storage(tmp_path)
    storage.client_states.put("fedavg", "north", torch.ones(3))
    storage.client_states.commit_round()
    storage.client_states.put("fedavg", "north", torch.zeros(3))  # of a round that is not complete
    storage.save(make_progress(1))
    resumed = make_storage(tmp_path)
    assert resumed.resume() is not None
    assert torch.equal(resumed.client_states.get("fedavg", "north"), torch.ones(3))


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert make_storage(tmp_path).resume() is None
    assert make_storage(None).restore() is None


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = make_storage(None)
    storage.metrics.add(1, "server", "global", {"accuracy": 0.5}, Traffic())
    storage.save(make_progress(1))
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_other_settings_is_rejected(tmp_path: Path) -> None:
    make_storage(tmp_path, "one").save(make_progress(1))
    with pytest.raises(RunError, match="digest one, expected two"):
        make_storage(tmp_path, "two").restore()


def test_the_budget_of_client_states_depends_on_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"cuda": 32 * 2**30, "cpu": 64 * 2**30}
    monkeypatch.setattr(run_storage, "free_memory", lambda device: free[device.type])
    on_gpu: Any = SimpleNamespace(device=torch.device("cuda"))
    on_cpu: Any = SimpleNamespace(device=torch.device("cpu"))
    assert state_budget(None, on_gpu) == StateBudget(int(run_storage.CLIENT_STATE_FRACTION * free["cuda"]), 8 * 2**30)
    assert state_budget(None, on_cpu) == StateBudget(4 * 2**30, 8 * 2**30)
    assert state_budget(0.5, on_gpu) == StateBudget(2**29, 0)


def test_personal_models_stay_on_a_gpu_that_has_room_for_all_of_them(tmp_path: Path) -> None:
    """A round has an old and a new model for each of four clients: 80 MB times eight."""
    model = Params.from_tensors({"weight": torch.zeros(20 * 2**20)})

    def is_kept(device_bytes: int) -> bool:
        budget = StateBudget(device=device_bytes, host=2**40)
        return RunStorage(tmp_path, CheckpointConfig(), "", budget).offload_for(4).offload(model) is model

    assert is_kept(2**30)
    assert not is_kept(2**29)
