"""Client states are the same wherever they are stored, and an interrupted round leaves no trace."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from motet.core.params import Params
from motet.experiment.loop import run_storage
from motet.learning.executors.memory_budget import PACKED_MODEL_FRACTION
from motet.transport.client_state import ClientStates, StateSource
from motet.transport.private_files import write_atomically

# Device and host budgets in bytes: all on the device; some in files; some in host memory; some in each.
BUDGETS = [(10**9, 0), (5000, 0), (5000, 10**9), (5000, 13000)]
with_every_budget = pytest.mark.parametrize(("device_budget", "host_budget"), BUDGETS)


def make_state(value: float, size: int = 1000) -> Params:
    return Params.from_tensors({"w": torch.full((size,), value)})


def read_value(states: ClientStates, client: str) -> float | None:
    state = states.get("p", client)
    return None if state is None else float(state.flat[0])


@with_every_budget
def test_a_state_is_read_as_it_was_written(device_budget: int, host_budget: int, tmp_path: Path) -> None:
    states = ClientStates(tmp_path / "states", device_budget, host_budget)
    for round_number in range(3):
        for i in range(6):
            states.put("p", f"c{i}", make_state(10 * round_number + i))
        states.commit_round()
        assert [read_value(states, f"c{i}") for i in range(6)] == [10 * round_number + i for i in range(6)]
    assert read_value(states, "stranger") is None
    bytes_on_device = sum(state.flat.numel() * 4 for state in states.values.values())
    assert bytes_on_device <= max(device_budget, 4000)


@with_every_budget
def test_a_discarded_round_leaves_no_trace(device_budget: int, host_budget: int, tmp_path: Path) -> None:
    states = ClientStates(tmp_path / "states", device_budget, host_budget)
    states.put("p", "a", make_state(1))
    states.put("p", "b", make_state(2))
    states.commit_round()
    states.put("p", "a", make_state(3))
    states.put("p", "b", make_state(4))
    assert read_value(states, "a") == 3
    states.discard_round()
    assert (read_value(states, "a"), read_value(states, "b")) == (1, 2)


@with_every_budget
def test_restored_states_are_those_of_the_checkpoint(device_budget: int, host_budget: int, tmp_path: Path) -> None:
    folder = tmp_path / "states"
    states = ClientStates(folder, device_budget, host_budget)
    for i in range(4):
        states.put("p", f"c{i}", make_state(i))
    states.commit_round()
    files = states.save()
    for i in range(4):
        states.put("p", f"c{i}", make_state(100 + i))
    states.commit_round()
    states.save()  # these files are written, but the process dies before a checkpoint names them
    restored = ClientStates(folder, device_budget, host_budget)
    restored.restore(files)
    restored.delete_unused_files()
    assert [read_value(restored, f"c{i}") for i in range(4)] == [0, 1, 2, 3]
    assert {path.name for path in folder.iterdir()} == set(files.values())
    restored.put("p", "c0", make_state(7))
    restored.commit_round()
    unchanged = {files["p", f"c{i}"] for i in range(1, 4)}
    assert set(restored.save().values()) & set(files.values()) == unchanged


def test_states_of_other_processes_are_only_read_to_save_or_recall_them(tmp_path: Path) -> None:
    loads: list[str] = []

    def source(client: str, value: float) -> StateSource:
        def load() -> Params:
            loads.append(client)
            return make_state(value)

        return StateSource(load, remote=f"address of {client}")

    states = ClientStates(tmp_path / "states", device_budget=0)
    states.put("p", "local", make_state(0))
    for k in (1, 2):
        states.put("p", f"c{k}", source(f"c{k}", k))
    states.commit_round()
    before = states.sources("c1")
    states.put("p", "c1", source("c1", 10))
    assert [before["p"].remote, states.sources("local")["p"].remote] == ["address of c1", None]
    assert not loads
    assert (read_value(states, "c1"), read_value(states, "c2")) == (10, 2)
    assert float(before["p"].load().flat[0]) == 1  # as it was
    states.discard_round()
    files = states.save()
    loads.clear()
    states.save()
    assert read_value(states, "c1") == 1  # from its file
    states.put("p", "c2", source("c2", 20))
    states.commit_round()
    assert not loads
    states.recall()
    assert loads == ["c2"]
    assert (read_value(states, "c1"), read_value(states, "c2"), read_value(states, "local")) == (1, 20, 0)
    assert not states.remote
    states.restore(files)
    assert (read_value(states, "c2"), set(states.sources("c2"))) == (2, {"p"})


def test_nothing_is_written_while_host_memory_suffices(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    states = ClientStates(folder, device_budget=5000, host_budget=10**9)
    assert states.store is not None
    bytes_in_host_memory = []
    for round_number in range(4):
        for i in range(6):
            states.put("p", f"c{i}", make_state(round_number))
        states.commit_round()
        bytes_in_host_memory.append(sum(map(len, states.store.in_memory.values())))
    assert not folder.exists()
    assert 0 < bytes_in_host_memory[-1] == bytes_in_host_memory[0], "states of earlier rounds must be freed"
    states.save()
    assert {path.name for path in folder.iterdir()} == set(states.stored.values())


def test_states_that_fit_stay_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients take part in every round, and the device has room for four of six."""
    states = ClientStates(tmp_path / "states", device_budget=17000, host_budget=10**9)
    assert states.store is not None
    reads, read_entry = list[str](), states.store.get
    monkeypatch.setattr(states.store, "get", lambda name: [reads.append(name), read_entry(name)][1])
    writes = []
    for round_number in range(3):
        reads.clear()
        entries_before = states.store.last_number
        for i in range(6):
            assert read_value(states, f"c{i}") == (round_number - 1 if round_number else None)
        for i in range(6):
            states.put("p", f"c{i}", make_state(-1.0))  # a client may change its state twice in a round
            states.put("p", f"c{i}", make_state(float(round_number)))
        states.commit_round()
        writes.append(states.store.last_number - entries_before)
        assert len(states.values) == 4
    assert (len(reads), writes) == (2, [4, 4, 4])  # two clients, and two writes of each


def test_client_names_may_contain_any_characters(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    states = ClientStates(folder, device_budget=1)
    clients = ["../../etc", "a/b", "ü" * 300, "client one"]
    for i, client in enumerate(clients):
        states.put("p", client, make_state(i))
    states.commit_round()
    assert [read_value(states, client) for client in clients] == [0, 1, 2, 3]
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [folder] * 4


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"


def test_client_states_and_packed_models_leave_some_device_memory_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"cuda": 32 * 2**30, "cpu": 64 * 2**30}
    monkeypatch.setattr(run_storage, "free_memory", lambda device: free[device.type])
    executor = SimpleNamespace(device=torch.device("cuda"))
    budget = run_storage.state_budget(None, executor)  # type: ignore[arg-type]
    with_changes_of_a_round = 2 * budget.device
    assert with_changes_of_a_round + PACKED_MODEL_FRACTION * free["cuda"] <= 0.95 * free["cuda"]
    assert (budget.device, budget.host) == (4 * 2**30, 8 * 2**30)
    limited = run_storage.state_budget(0.5, executor)  # type: ignore[arg-type]
    assert (limited.device, limited.host) == (2**29, 0)
