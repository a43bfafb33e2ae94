"""A journal keeps a client's states by request, so that a restarted server gets the same answers again."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.transport.journal import Journal
from motet.transport.requests import Request

CLIENT = "a/b"


def make_request(request_id: int, last_checkpointed: int = 0, client: str = CLIENT) -> Request:
    return Request(request_id, client, 0, "p.m", None, last_checkpointed)


def write_states(journal: Journal, *request_ids: int) -> None:
    for request_id in request_ids:
        journal.begin_request(make_request(request_id))
        journal.put("p", CLIENT, {"written by": request_id})


@pytest.fixture(params=["on disk", "in memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "j" if request.param == "on disk" else None


def test_a_request_sees_the_state_that_earlier_requests_left(folder: Path | None) -> None:
    journal = Journal(folder)
    assert journal.get("p", CLIENT) is None
    write_states(journal, 1, 4, 9)
    assert journal.get("p", CLIENT) == {"written by": 9}
    journal.begin_request(make_request(9))  # repeated: its first state is forgotten
    assert journal.get("p", CLIENT) == {"written by": 4}
    journal.begin_request(make_request(2))  # the server went back further
    assert journal.get("p", CLIENT) == {"written by": 1}
    journal.begin_request(make_request(1))
    assert journal.get("p", CLIENT) is None


def test_an_evaluation_request_changes_nothing(folder: Path | None) -> None:
    journal = Journal(folder)
    write_states(journal, 1, 2)
    journal.begin_request(make_request(-7))
    journal.put("p", CLIENT, "must not be stored")
    assert journal.get("p", CLIENT) == {"written by": 2}


def test_versions_before_the_last_checkpoint_are_deleted(folder: Path | None) -> None:
    journal = Journal(folder)
    write_states(journal, 1, 2, 3, 4)
    journal.begin_request(make_request(5, last_checkpointed=3))
    assert sorted(journal.versions["p", CLIENT]) == [3, 4]
    if folder is not None:
        assert len([*folder.iterdir()]) == 2


def test_clients_and_programs_have_separate_states(folder: Path | None) -> None:
    journal = Journal(folder)
    for client in (CLIENT, "c"):
        journal.begin_request(make_request(1, client=client))
        for program in ("p", "q@r"):
            journal.put(program, client, f"{program} of {client}")
    journal.begin_request(make_request(1, client="c"))
    assert journal.get("q@r", CLIENT) == f"q@r of {CLIENT}"
    assert journal.get("q@r", "c") is None


def test_states_survive_the_process(tmp_path: Path) -> None:
    write_states(Journal(tmp_path), 1, 2)
    (tmp_path / ".half.part").write_bytes(b"an interrupted write")
    reopened = Journal(tmp_path)
    assert reopened.get("p", CLIENT) == {"written by": 2}
    reopened.begin_request(make_request(2))
    assert reopened.get("p", CLIENT) == {"written by": 1}
