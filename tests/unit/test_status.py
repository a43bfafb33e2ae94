"""The status of a served run: in its folder, on a page, in the terminal."""

from __future__ import annotations

import json
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.networks import find_free_port

from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.run_folder import create_run_folder
from motet.experiment.commands.run_state import describe_state
from motet.experiment.commands.server_reports import start_reports
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.recipe.run_config import RunConfig
from motet.report import page_server
from motet.report.log_lines import limit_repeats
from motet.report.page_server import MAX_CONNECTIONS
from motet.report.run_callback import RunCallback
from motet.report.run_status import RunStatus, format_status, read_status
from motet.report.status_server import start_status_server
from motet.transport.folder_lock import lock_folder
from motet.transport.traffic import Traffic


@pytest.fixture
def status(tmp_path: Path) -> RunStatus:
    clients = {"connected": ["a"], "waited_for": {"b": 12.3}, "refused": {"eve": 2}, "certificate_expires": 1.9e9}
    return RunStatus(RunCallback(), lambda: clients, tmp_path / "status.json")


def play_one_round(status: RunStatus) -> None:
    status.on_run_begin("fedavg", 3, 0)
    status.on_round_begin(1, 2)
    status.on_client_done(1, 2)
    status.on_round_end(1, {"accuracy": 0.75}, "accuracy", Traffic(2, 10, 10, 2_000_000, 1_000_000))


@pytest.fixture
def page(status: RunStatus) -> Iterator[str]:
    play_one_round(status)
    url, stop = start_status_server("127.0.0.1:0", status.snapshot, "")
    yield url
    stop()


def test_without_a_token_other_host_names_are_refused(page: str) -> None:
    """A web page in a browser on this machine could let its own host name point to it."""
    port = page.rsplit(":", maxsplit=1)[-1].strip("/")
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert urlopen(Request(page, headers={"Host": host})).status == 200
    for host in (f"evil.example:{port}", f"localhost.evil.example:{port}", f"127.0.0.1:{port}.evil.example"):
        with pytest.raises(HTTPError, match="400"):
            urlopen(Request(page, headers={"Host": host}))


def test_silent_connections_do_not_use_up_threads(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server._PageRequest, "timeout", None)  # a slow machine must not let them end by themselves
    address = ("127.0.0.1", int(page.rsplit(":", maxsplit=1)[-1].strip("/")))
    before = threading.active_count()
    with ExitStack() as stack:
        waiting = {stack.enter_context(socket.create_connection(address)) for _ in range(MAX_CONNECTIONS + 20)}
        while len(waiting) > MAX_CONNECTIONS:
            closed = select.select(waiting, [], [], 60)[0]
            assert closed, f"{len(waiting)} connections are open; expected {MAX_CONNECTIONS}"
            assert all(link.recv(1) == b"" for link in closed)
            waiting -= set(closed)
        assert threading.active_count() - before <= MAX_CONNECTIONS
        assert not select.select(waiting, [], [], 0)[0], "the others stay open"
    for _ in range(100):  # the places are free again when the server notices
        with suppress(OSError), urlopen(page) as response:
            assert response.status == 200
            return
        time.sleep(0.1)
    pytest.fail("the page is not served again")


def test_the_page_shows_the_status_of_the_run(page: str) -> None:
    status = read_status(page)
    assert (status["done"], status["rounds"], status["state"]) == (1, 3, "running")
    text = format_status(status)
    for part in (
        "1 of 3 done",
        "1 of 2 clients",
        "accuracy 0.750",
        "2.0 MB up",
        "b (12 s)",
        "eve: 2 messages",
        "until 2030-03-17",
    ):
        assert part in text
    with urlopen(page) as response:
        assert b"<title>Motet</title>" in response.read()
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    with pytest.raises(HTTPError, match="404"):
        urlopen(page + "../../etc/passwd")


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({}, "10 of 40 done, about 6 min left"),
        ({"rounds_timed": 0, "round_seconds": 0.0}, "10 of 40 done"),
        ({"done": 40}, "40 of 40 done"),
        ({"state": "stopped: the server is gone"}, "10 of 40 done"),
    ],
)
def test_the_time_left_is_that_of_rounds_since_the_server_started(changes: dict[str, Any], rounds: str) -> None:
    status = {"state": "running", "rounds": 40, "done": 10, "rounds_timed": 5, "round_seconds": 60.0, **changes}
    assert format_status(status).splitlines()[1] == f"rounds      {rounds}"


def test_a_page_that_other_machines_can_reach_needs_a_token(status: RunStatus) -> None:
    with pytest.raises(ConfigError, match="MOTET_STATUS_TOKEN"):
        start_status_server("0.0.0.0:0", status.snapshot, "")
    url, stop = start_status_server("127.0.0.1:0", status.snapshot, "secret")
    try:
        for wrong in ("", "guess"):
            with pytest.raises(RunError, match="401"):
                read_status(url, wrong)
        assert read_status(url, "secret")["connected"] == ["a"]
        with urlopen(url + "status.json?token=secret") as response:
            assert json.loads(response.read())["state"] == "waiting for clients"
    finally:
        stop()


def test_the_folder_has_the_status_and_how_the_run_ended(status: RunStatus, tmp_path: Path) -> None:
    play_one_round(status)
    status.on_run_end()
    assert read_status(str(tmp_path))["state"] == "stopped"
    status.on_round_end(3, {}, "accuracy", Traffic())
    status.on_run_end()
    assert read_status(str(tmp_path))["state"] == "finished"
    with pytest.raises(ConfigError, match=r"elsewhere' does not exist"):
        describe_state(str(tmp_path / "elsewhere"))


def test_a_server_that_is_gone_is_named_in_plain_words() -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    with pytest.raises(RunError, match=f"^{url} returned no status: Connection refused. Check the address"):
        describe_state(url)


def test_a_run_that_has_not_begun_says_what_it_waits_for(status: RunStatus, tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        assert "starting: the data" in format_status(describe_state(str(tmp_path)))
        status.on_waiting("waiting for clients: 1 of 2 are connected: a; missing: b")
        assert "1 of 2 are connected: a; missing: b" in format_status(describe_state(str(tmp_path)))


def test_a_run_without_a_server_has_a_status_too(tmp_path: Path) -> None:
    create_run_folder(tmp_path, {"": RunConfig.from_settings("toy", {"rounds": 4})})
    MetricsLog(tmp_path).add(3, "clients", "test", {"f1": 1.0}, Traffic())
    assert format_status(describe_state(str(tmp_path))) == "toy: interrupted\nrounds      3 of 4 done"


def test_a_line_is_repeated_only_if_it_changes_or_a_minute_has_passed() -> None:
    lines: list[str] = []
    seconds = iter([0.0, 30.0, 59.0, 60.0, 60.0])
    log = limit_repeats(lines.append, 60.0, lambda: next(seconds))
    for line in ("a", "a", "a", "a", "b"):
        log(line)
    assert lines == ["a", "a", "b"]


def test_a_killed_server_is_not_running(status: RunStatus, tmp_path: Path) -> None:
    play_one_round(status)
    with lock_folder(tmp_path):
        assert read_status(str(tmp_path))["state"] == "running"
    gone = read_status(str(tmp_path))
    assert (gone["state"], gone["connected"], gone["done"]) == ("stopped: the server is gone", [], 1)


def test_nobody_is_connected_to_a_server_that_has_ended(status: RunStatus, tmp_path: Path) -> None:
    play_one_round(status)
    status.on_run_end()
    ended = read_status(str(tmp_path))
    assert (ended["state"], ended["connected"], ended["away"]) == ("stopped", [], [])
    assert "this round" not in format_status(ended)


def test_the_server_says_which_clients_are_missing() -> None:
    connected: list[list[str]] = [["south"]]
    lines: queue.Queue[str] = queue.Queue()
    connections = SimpleNamespace(
        disconnected_clients=lambda: [c for c in ("north",) if c not in connected[0]],
        connected_clients=lambda: connected[0],
    )
    stop = start_reports(connections, 600, None, lines.put, interval=0.01)  # type: ignore[arg-type]
    assert lines.get(timeout=300) == "waiting for north: disconnected, up to 600 s"
    connected[0] = ["north", "south"]
    while (line := lines.get(timeout=300)) != "north is back":
        assert "waiting for north" in line
    stop()
