from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from motet.core.errors import ConfigError, RunError
from motet.report.progress import SilentProgress
from motet.report.run_status import RunStatus, format_status, read_status
from motet.report.status_server import start_status_server
from motet.transport.mailbox import Traffic


@pytest.fixture
def status(tmp_path: Path) -> RunStatus:
    clients = {"connected": ["a"], "waited_for": {"b": 12.3}, "refused": {"eve": 2}}
    return RunStatus(SilentProgress(), lambda: clients, tmp_path / "status.json")


def some_rounds(status: RunStatus) -> None:
    status.on_run_begin("trial", 3, 0)
    status.on_round_begin(1, 2)
    status.on_client_done(1, 2)
    status.on_round_end(1, {"accuracy": 0.75}, "accuracy", Traffic(2, 10, 10, 2_000_000, 1_000_000))


@pytest.fixture
def page(status: RunStatus) -> Iterator[str]:
    some_rounds(status)
    address, end = start_status_server("127.0.0.1:0", status.snapshot, "")
    yield address
    end()


def test_a_page_says_where_the_run_stands(page: str) -> None:
    found = read_status(page)
    assert (found["done"], found["rounds"], found["state"]) == (1, 3, "running")
    said = format_status(found)
    for words in ("1 of 3 done", "1 of 2 clients", "accuracy 0.750", "2.0 MB up", "b (12 s)", "eve: 2 messages"):
        assert words in said
    with urlopen(page) as answer:
        assert b"<title>Motet</title>" in answer.read()
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    with pytest.raises(HTTPError, match="404"):
        urlopen(page + "../../etc/passwd")


def test_a_page_that_others_can_see_needs_a_token(status: RunStatus) -> None:
    with pytest.raises(ConfigError, match="MOTET_STATUS_TOKEN"):
        start_status_server("0.0.0.0:0", status.snapshot, "")
    address, end = start_status_server("127.0.0.1:0", status.snapshot, "word")
    try:
        for wrong in ("", "guess"):
            with pytest.raises(RunError, match="401"):
                read_status(address, wrong)
        assert read_status(address, "word")["connected"] == ["a"]
        with urlopen(address + "status.json?token=word") as answer:
            assert json.loads(answer.read())["state"] == "waiting for clients"
    finally:
        end()


def test_the_folder_says_it_too_and_how_it_ended(status: RunStatus, tmp_path: Path) -> None:
    some_rounds(status)
    status.on_run_end()
    assert read_status(str(tmp_path))["state"] == "stopped"
    status.on_round_end(3, {}, "accuracy", Traffic())
    status.on_run_end()
    assert read_status(str(tmp_path))["state"] == "finished"
    with pytest.raises(ConfigError, match=r"has no status\.json"):
        read_status(str(tmp_path / "elsewhere"))
