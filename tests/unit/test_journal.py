from __future__ import annotations

from pathlib import Path

import pytest

from motet.transport.journal import Journal
from motet.transport.requests import Request


def request(number: int, settled: int = 0, client: str = "a/b") -> Request:
    return Request(number, client, 0, "p.m", None, settled)


@pytest.fixture(params=["on disk", "in memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "j" if request.param == "on disk" else None


def filled(journal: Journal, *numbers: int, settled: int = 0) -> None:
    for number in numbers:
        journal.turn(request(number, settled))
        journal.put("p", "a/b", {"left by": number})


def test_a_request_finds_what_those_before_it_left(folder: Path | None) -> None:
    journal = Journal(folder)
    assert journal.get("p", "a/b") is None
    filled(journal, 1, 4, 9)
    assert journal.get("p", "a/b") == {"left by": 9}
    journal.turn(request(9))  # asked again: its own first answer is forgotten
    assert journal.get("p", "a/b") == {"left by": 4}
    journal.turn(request(2))  # a server that went back further
    assert journal.get("p", "a/b") == {"left by": 1}
    journal.turn(request(1))
    assert journal.get("p", "a/b") is None


def test_a_look_changes_nothing(folder: Path | None) -> None:
    journal = Journal(folder)
    filled(journal, 1, 2)
    journal.turn(request(-7))
    journal.put("p", "a/b", "nothing that lasts")
    assert journal.get("p", "a/b") == {"left by": 2}


def test_what_a_checkpoint_has_is_not_kept_twice(folder: Path | None) -> None:
    journal = Journal(folder)
    filled(journal, 1, 2, 3, 4)
    journal.turn(request(5, settled=3))
    assert sorted(journal.versions["p", "a/b"]) == [3, 4]
    if folder is not None:
        assert len([*folder.iterdir()]) == 2


def test_clients_and_programs_have_memories_of_their_own(folder: Path | None) -> None:
    journal = Journal(folder)
    for client in ("a/b", "c"):
        journal.turn(request(1, client=client))
        for program in ("p", "q@r"):
            journal.put(program, client, f"{program} of {client}")
    journal.turn(request(1, client="c"))
    assert journal.get("q@r", "a/b") == "q@r of a/b"
    assert journal.get("q@r", "c") is None


def test_memories_outlive_the_process(tmp_path: Path) -> None:
    filled(Journal(tmp_path), 1, 2)
    (tmp_path / ".half.part").write_bytes(b"a write that was cut off")
    again = Journal(tmp_path)
    assert again.get("p", "a/b") == {"left by": 2}
    again.turn(request(2))
    assert again.get("p", "a/b") == {"left by": 1}
