from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from motet.core.params import Params
from motet.learning.executors.memory_budget import PACKED_MODEL_FRACTION
from motet.transport.client_state import ClientStates
from motet.transport.spill_store import write_atomically

PLACES = [
    (10**9, 0),
    (5000, 0),
    (5000, 10**9),
    (5000, 13000),
]  # bytes as they are, and packed: all, some, the others packed


def memory(value: float, size: int = 1000) -> Params:
    return Params.from_tensors({"w": torch.full((size,), value)})


def value_of(memories: ClientStates, client: str) -> float | None:
    found = memories.get("p", client)
    return None if found is None else float(found.flat[0])


@pytest.mark.parametrize(("budget", "room"), PLACES)
def test_what_is_put_is_got_in_memory_packed_or_on_disk(budget: int, room: int, tmp_path: Path) -> None:
    memories = ClientStates(tmp_path / "m", budget, room)
    for turn in range(3):
        for i in range(6):
            memories.put("p", f"c{i}", memory(10 * turn + i))
        memories.settle()
        assert [value_of(memories, f"c{i}") for i in range(6)] == [10 * turn + i for i in range(6)]
    assert value_of(memories, "stranger") is None
    held = sum(v.flat.numel() * 4 for v in memories.values.values())
    assert held <= max(budget, 4000)


@pytest.mark.parametrize(("budget", "room"), PLACES)
def test_a_round_that_did_not_end_leaves_no_trace(budget: int, room: int, tmp_path: Path) -> None:
    memories = ClientStates(tmp_path / "m", budget, room)
    memories.put("p", "a", memory(1))
    memories.put("p", "b", memory(2))
    memories.settle()
    memories.put("p", "a", memory(3))
    memories.put("p", "b", memory(4))
    assert value_of(memories, "a") == 3
    memories.forget_round()
    assert (value_of(memories, "a"), value_of(memories, "b")) == (1, 2)


@pytest.mark.parametrize(("budget", "room"), PLACES)
def test_what_was_saved_is_restored_and_later_files_are_swept(budget: int, room: int, tmp_path: Path) -> None:
    memories = ClientStates(tmp_path / "m", budget, room)
    for i in range(4):
        memories.put("p", f"c{i}", memory(i))
    memories.settle()
    files = memories.save()
    for i in range(4):
        memories.put("p", f"c{i}", memory(100 + i))
    memories.settle()
    memories.save()  # written, but no checkpoint names them: the power fails here
    again = ClientStates(tmp_path / "m", budget, room)
    again.restore(files)
    assert [value_of(again, f"c{i}") for i in range(4)] == [0, 1, 2, 3]
    assert {p.name for p in (tmp_path / "m").iterdir()} == set(files.values())
    again.put("p", "c0", memory(7))
    again.settle()
    assert set(again.save().values()) & set(files.values()) == {files["p", f"c{i}"] for i in range(1, 4)}


def test_nothing_is_written_while_the_host_has_room_and_old_pages_are_let_go(tmp_path: Path) -> None:
    memories = ClientStates(tmp_path / "m", budget=5000, room=10**9)
    held = []
    for turn in range(4):
        for i in range(6):
            memories.put("p", f"c{i}", memory(turn))
        memories.settle()
        assert memories.pages is not None
        held.append(sum(len(page) for page in memories.pages.held.values()))
    assert not (tmp_path / "m").exists()
    assert 0 < held[-1] == held[0], "pages of former rounds would fill the memory"
    memories.save()
    assert {p.name for p in (tmp_path / "m").iterdir()} == set(memories.paged.values())


def test_names_of_clients_may_be_anything(tmp_path: Path) -> None:
    memories = ClientStates(tmp_path / "m", budget=1)
    names = ["../../etc", "a/b", "ü" * 300, "client one"]
    for i, name in enumerate(names):
        memories.put("p", name, memory(i))
    memories.settle()
    assert [value_of(memories, name) for name in names] == [0, 1, 2, 3]
    assert sorted(p.parent for p in tmp_path.rglob("*") if p.is_file()) == [tmp_path / "m"] * 4


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"


def test_memories_and_packs_share_a_device_and_leave_some_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.experiment.loop import run_loop as run

    free = {"cuda": 32 * 2**30, "cpu": 64 * 2**30}
    monkeypatch.setattr(run, "free_memory", lambda device: free[device.type])
    on_device, beside = run._at_hand(None, SimpleNamespace(device=torch.device("cuda")))  # type: ignore[arg-type]
    assert (
        2 * on_device + PACKED_MODEL_FRACTION * free["cuda"] <= 0.95 * free["cuda"]
    )  # what a round has changed is held twice
    assert on_device == 4 * 2**30
    assert beside == 8 * 2**30
    assert run._at_hand(0.5, SimpleNamespace(device=torch.device("cuda"))) == (2**29, 0)  # type: ignore[arg-type]
