"""The dashboard: who may look, what is listed, how pages grow, and what is never shown."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest
from tests.benchmarks import make_stamp, make_summary

from motet import cli
from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.run_folder import create_run_folder
from motet.experiment.commands.run_state import read_run_state, record_failure
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.loop.metrics_tail import MetricsTail
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.folder_lock import lock_folder
from motet.transport.json_files import write_json
from motet.transport.traffic import Traffic

pytest.importorskip("starlette", reason="starlette is not installed")
from starlette.testclient import TestClient

from motet.dashboard.access_token import choose_token
from motet.dashboard.http_server import Dashboard, DashboardOptions
from motet.dashboard.run_catalog import RunCatalog
from motet.dashboard.web_app import create_app

TOKEN = "correct horse battery"
LOCAL = "http://127.0.0.1:8895"
RECIPE: dict[str, Any] = {"rounds": 5, "data": {"name": "toy-classification"}, "model": {"name": "tiny"}}


def add_round(folder: Path, round: int, accuracy: float, **clients: float) -> None:
    log = MetricsLog(folder)
    traffic = Traffic(2, 1000 * round, 2000 * round, 0, 0)
    log.add(round, "server", "global", {"accuracy": accuracy, "loss": 1 - accuracy}, traffic)
    for client, score in clients.items():
        log.add(round, client, "test", {"accuracy": score}, traffic)


def write_run(folder: Path, rounds: int = 2, **sections: Any) -> Path:
    """Write a run that has completed some rounds, without training."""
    create_run_folder(folder, {"": RunConfig.from_settings("toy", {**RECIPE, **sections})})
    for round in range(1, rounds + 1):
        add_round(folder, round, round / 10, north=0.25)
    return folder


def finish_run(folder: Path) -> None:
    spread = {"mean": 0.5, "worst_decile": 0.0625}
    write_json(folder / "summary.json", make_summary(final={"accuracy": 0.75}, clients_final=spread))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    finish_run(write_run(tmp_path / "runs" / "done"))
    write_run(tmp_path / "runs" / "half")
    return tmp_path / "runs"


@pytest.fixture
def browse(runs: Path) -> Iterator[TestClient]:
    """A viewer without a token, of a dashboard that needs none."""
    with TestClient(create_app(runs, ""), base_url=LOCAL) as client:
        yield client


@pytest.fixture
def stranger(runs: Path) -> Iterator[TestClient]:
    with TestClient(create_app(runs, TOKEN), base_url=LOCAL, follow_redirects=False) as client:
        yield client


def entries(client: TestClient) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in client.get("/api/runs").json()["entries"]}


# Who may look


@pytest.mark.parametrize("path", ["/", "/report?run=done", "/export?run=done", "/api/runs", "/api/updates", "/x"])
def test_every_page_needs_the_token(stranger: TestClient, path: str) -> None:
    answers = {
        "no token": stranger.get(path),
        "a wrong token": stranger.get(path, params={"token": "guess"}),
        "a wrong header": stranger.get(path, headers={"Authorization": "Bearer guess"}),
        "a wrong cookie": stranger.get(path, headers={"Cookie": f"motet-dashboard-8895={TOKEN}"}),
    }
    for name, answer in answers.items():
        assert answer.status_code == 401, name
        assert "done" not in answer.text
        assert TOKEN not in answer.text
    assert "This token is wrong." in answers["a wrong token"].text


def test_a_browser_gives_the_token_once_and_then_has_a_cookie(stranger: TestClient) -> None:
    answer = stranger.get("/report", params={"run": "done", "token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "./report?run=done")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert stranger.get("/api/runs").status_code == 200
    stranger.cookies.clear()
    assert stranger.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_pages_run_only_their_own_scripts_and_are_kept_by_nobody(stranger: TestClient) -> None:
    for answer in (stranger.get("/"), stranger.get("/", headers={"Authorization": f"Bearer {TOKEN}"})):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_without_a_token_other_host_names_are_refused(browse: TestClient) -> None:
    """A page in the browser could let its own name point to this machine."""
    assert browse.get("/api/runs").status_code == 200
    assert browse.get("/api/runs", headers={"Host": "evil.example"}).status_code == 400


def test_a_token_is_random_or_long_and_only_loopback_needs_none() -> None:
    assert choose_token(None, is_open=False, host="0.0.0.0") != choose_token(None, is_open=False, host="0.0.0.0")
    assert choose_token(None, is_open=True, host="127.0.0.1") == ""
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached from others"):
        choose_token(None, is_open=True, host="0.0.0.0")
    with pytest.raises(ConfigError, match="has 5 characters; expected at least 16"):
        choose_token("12345", is_open=False, host="127.0.0.1")
    with pytest.raises(ConfigError, match="both given"):
        choose_token(TOKEN, is_open=True, host="127.0.0.1")


# Folders and addresses


def test_a_folder_without_runs_is_explained(tmp_path: Path) -> None:
    def open_dashboard(folder: Path, bind: str = "127.0.0.1:0") -> None:
        Dashboard(folder, DashboardOptions(bind=bind)).listener.close()

    with pytest.raises(ConfigError, match="does not exist"):
        open_dashboard(tmp_path / "nowhere")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="is a file"):
        open_dashboard(tmp_path / "thesis.txt")
    with pytest.raises(ConfigError, match=r"has no run: no folder in it has a config\.yaml"):
        open_dashboard(tmp_path)
    (tmp_path / "later").mkdir()
    open_dashboard(tmp_path / "later")  # runs may come
    with lock_folder(tmp_path / "now" / "run"):  # a run is about to write its config.yaml
        open_dashboard(tmp_path / "now")
    with pytest.raises(ConfigError, match="expected host:port"):
        open_dashboard(tmp_path / "later", "8895")


def test_a_port_in_use_is_explained(runs: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RunError, match=r"Address already in use\. Choose another address or port"):
            Dashboard(runs, DashboardOptions(bind=bind))


def test_the_dashboard_is_served_next_to_a_run(runs: Path) -> None:
    dashboard = Dashboard(runs, DashboardOptions(bind="127.0.0.1:0"))
    with dashboard.serve_in_background():
        page, _, token = dashboard.url.partition("?token=")
        assert len(token) >= 32
        with pytest.raises(HTTPError, match="401"):
            urlopen(page)
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(dashboard.url) as answer:
            assert (answer.url, b"runs" in answer.read()) == (page, True)


@pytest.mark.parametrize(
    "path",
    [
        "/report?run=..", "/report?run=../runs/done", "/api/report?run=/etc", "/export?run=done/../half", "/report",
        "/api/report?run=done/baselines/..", "/api/report?benchmark=done", "/api/report?run=linked", "/api/updates?run=.&after=",
        "/assets/v/__init__.py", "/assets/v/..%2f__init__.py", "/assets/v/page.html", "/done/config.yaml", "/..%2f..%2fetc/passwd",
    ],
)  # fmt: skip
def test_only_listed_runs_and_files_can_be_asked_for(browse: TestClient, runs: Path, path: str) -> None:
    secret = runs.parent / "secret"
    write_run(secret)
    (runs / "linked").symlink_to(secret)
    answer = browse.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


def test_no_request_can_change_anything(browse: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert browse.request(method, "/api/runs").status_code == 405


# The list


def test_the_list_has_the_state_progress_and_score_of_every_run(browse: TestClient, runs: Path) -> None:
    with pytest.raises(RunError), record_failure(write_run(runs / "broken"), is_retry=False):
        raise RunError("the disk is on fire")
    (write_run(runs / "unreadable") / "config.yaml").write_text("rounds: {")
    with lock_folder(write_run(runs / "active")):
        listed = entries(browse)
    states = {name: entry["state"] for name, entry in listed.items()}
    assert states == {
        "done": "finished", "half": "interrupted", "broken": "failed", "active": "running", "unreadable": "failed",
    }  # fmt: skip
    active = listed["active"]
    assert (active["round"], active["rounds"], active["score"], active["metric"]) == (2, 5, 0.2, "accuracy")
    assert active["seconds_left"] == pytest.approx(active["seconds"] / 2 * 3)
    assert listed["done"]["score"] == 0.75
    assert listed["broken"]["reason"] == "the disk is on fire"
    assert "cannot be read" in listed["unreadable"]["reason"]


ROW = {"round": 1, "who": "server", "split": "note", "name": "x", "value": 1, **make_stamp(1.0)}


def add_rows(folder: Path, *rows: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(ROW | row) + "\n" for row in rows)


def replace_by_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


HOSTILE_FOLDERS: dict[str, Callable[[Path], Any]] = {
    "a note and a value of a client with one name": lambda run: add_rows(run, {}, {"split": "weight", "who": "north"}),
    "a number that is no float": lambda run: add_rows(run, {"split": "global", "value": 10**400}),
    "a round that is no float": lambda run: add_rows(run, {"split": "global", "round": 10**400}),
    "half a character": lambda run: add_rows(run, {"split": "global", "name": "\ud800"}),
    "a name that is not UTF-8": lambda run: run.rename(run.parent / "\udce9"),
    "endless metrics": lambda run: replace_by_device(run / "metrics.jsonl"),
    "an endless summary": lambda run: replace_by_device(run / "summary.json"),
    "a pipe": lambda run: os.mkfifo(run / "failed.json"),
    "a folder in place of a file": lambda run: (run / "summary.json").mkdir(),
}


@pytest.mark.parametrize("change", HOSTILE_FOLDERS.values(), ids=HOSTILE_FOLDERS)
def test_a_hostile_folder_does_not_hide_the_other_runs(runs: Path, change: Callable[[Path], Any]) -> None:
    """One such run once broke the list, or let the dashboard read forever."""
    change(write_run(runs / "hostile"))
    with TestClient(create_app(runs, ""), base_url=LOCAL) as browse:
        listed = entries(browse)
        assert listed["done"]["state"] == "finished"
        assert len(listed) == 3
        assert browse.get("/metrics").status_code == 200
        assert browse.get("/api/report", params={"run": "hostile"}).status_code in (200, 404)
        assert browse.get("/api/updates", params={"run": "hostile", "after": ""}).status_code in (200, 404)


def test_a_rejected_configuration_is_no_failure_and_a_retry_forgets_the_last_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with pytest.raises(ConfigError), record_failure(folder, is_retry=False):
        raise ConfigError("no such key")
    assert read_run_state(folder).name == "interrupted"
    with pytest.raises(ValueError, match="bug"), record_failure(folder, is_retry=False):
        raise ValueError("bug")
    assert read_run_state(folder) == ("failed", "bug")
    advice = "what happened, what was expected. " * 10 + "Do this."
    with pytest.raises(RunError), record_failure(folder, is_retry=True):
        raise RunError(advice)
    assert read_run_state(folder) == ("failed", advice), "the advice is at the end"
    with record_failure(folder, is_retry=True):
        assert read_run_state(folder).name == "interrupted"


def test_a_folder_that_another_run_takes_over_is_read_again(runs: Path) -> None:
    catalog = RunCatalog(runs / "done", max_age=0)
    assert catalog.entries()[0]["state"] == "finished"
    shutil.rmtree(runs / "done")
    assert catalog.entries() == []
    write_run(runs / "done", rounds=1, algorithm="fedprox")
    assert [(entry["state"], entry["algorithm"]) for entry in catalog.entries()] == [("interrupted", "fedprox")]


# Growth


def test_updates_have_only_what_is_new(browse: TestClient, runs: Path) -> None:
    [report] = browse.get("/api/report", params={"run": "half"}).json()["runs"]
    assert [point[:2] for point in report["curves"]["accuracy"]] == [[1, 0.1], [2, 0.2]]

    def look(cursor: str) -> dict[str, Any]:
        update: dict[str, Any] = browse.get("/api/updates", params={"run": "half", "after": cursor}).json()["runs"][
            "half"
        ]
        return update

    assert look(report["cursor"])["curves"] == {}
    add_round(runs / "half", 3, 0.3, south=0.5)
    update = look(report["cursor"])
    assert [point[:2] for point in update["curves"]["accuracy"]] == [[3, 0.3]]
    assert update["client_scores"] == {"south": 0.5}
    assert (update["round"], update["state"]) == (3, "interrupted")
    assert look(update["cursor"])["curves"] == {}
    assert look("nonsense")["round"] == 3
    assert look("9" * 30)["round"] == 3


def test_lines_before_the_cursor_are_not_read_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    tail = MetricsTail(folder)
    assert len(list(tail.read())) == 6
    data = bytearray((folder / "metrics.jsonl").read_bytes())
    data[:100] = b"x" * 100
    (folder / "metrics.jsonl").write_bytes(data)
    add_round(folder, 3, 0.3)
    assert [row["round"] for row in tail.read()] == [3, 3]
    assert not tail.is_restart


def test_half_a_line_waits_and_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=1)
    tail = MetricsTail(folder)
    first = len(list(tail.read()))
    row = {"round": 2, "who": "server", "split": "global", "name": "accuracy", "value": 1.0, **make_stamp(1.0)}
    line = json.dumps(row)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f'{{"round": 2, "wh\n[1]\n{line}\n{line[:20]}')
    assert [row["value"] for row in tail.read()] == [1.0]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f"{line[20:]}\n")
    assert [row["value"] for row in tail.read()] == [1.0]
    assert first == 3


def test_a_run_that_goes_back_to_a_checkpoint_is_read_from_its_start(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=3)
    tail = MetricsTail(folder)
    size_after_round_1 = sum(len(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines(True)[:3])
    list(tail.read())
    MetricsLog(folder).resume(size_after_round_1, 1.0)
    for round in (2, 3, 4):
        add_round(folder, round, 0.9, north=0.5)
    rounds = [row["round"] for row in tail.read() if row["name"] == "accuracy" and row["who"] == "server"]
    assert (rounds, tail.is_restart) == ([1, 2, 3, 4], True)


# What is shown


def test_a_run_that_diverged_is_shown(browse: TestClient, runs: Path) -> None:
    add_round(runs / "half", 3, float("nan"), north=float("inf"))
    [report] = browse.get("/api/report", params={"run": "half"}).json()["runs"]
    assert ([point[0] for point in report["curves"]["accuracy"]], report["round"]) == ([1, 2], 3)
    assert report["client_scores"] == {"north": None}
    assert entries(browse)["half"]["score"] == 0.2
    assert (
        "NaN"
        not in browse.get("/export", params={"run": "half"}).text.partition('id="data"')[2].partition("</script>")[0]
    )


def test_the_export_is_the_report_in_one_file(browse: TestClient) -> None:
    answer = browse.get("/export", params={"run": ["done", "half"]})
    assert "attachment" in answer.headers["Content-Disposition"]
    assert "<script src=" not in answer.text
    assert '"id":"half"' in answer.text


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the dashboard once waited forever for a request, or for the rest of one."""
    monkeypatch.setattr("motet.dashboard.http_connection.MAX_CONNECTIONS", 4)
    monkeypatch.setattr("motet.dashboard.http_connection.IDLE_SECONDS", 0.5)
    write_run(tmp_path / "run")
    dashboard = Dashboard(tmp_path, DashboardOptions("127.0.0.1:0", token="token-of-the-page"))
    with dashboard.serve_in_background(), ExitStack() as stack:
        address = dashboard.listener.getsockname()[:2]
        links = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(8)]
        for link in links[:2]:
            with suppress(ConnectionError):
                link.sendall(b"GET / HTTP/1.1\r\nHost:")
        for link in links:
            with suppress(ConnectionError):
                assert link.recv(1) == b""
        with build_opener(HTTPCookieProcessor()).open(dashboard.url) as response:  # their places are free again
            assert response.status == 200


def test_names_are_escaped(runs: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    write_run(runs / name)
    with TestClient(create_app(runs, ""), base_url=LOCAL) as browse:
        page = browse.get("/report", params={"run": name}).text
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


SECRETS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the score of a single client": lambda report: report["client_scores"],
    "notes on single clients": lambda report: report["notes"],
    "texts": lambda report: report["samples"],
}


def test_of_clients_with_their_own_data_no_text_and_no_single_score_is_shown(browse: TestClient, runs: Path) -> None:
    folder = write_run(runs / "pilot", transport={"type": "grpc", "clients": 2})
    MetricsLog(folder).add(2, "north", "weight", {"weight": 0.123}, Traffic())
    finish_run(folder)
    write_json(folder / "samples.json", [{"prompt": "my secret", "reference": "x", "before": "y"}])
    write_json(folder / "deployment.json", {"run": "1", "clients": [], "token_hashes": {"north": "5ecret"}})
    [pilot] = browse.get("/api/report", params={"run": "pilot"}).json()["runs"]
    [simulated] = browse.get("/api/report", params={"run": "half"}).json()["runs"]
    for name, read in SECRETS.items():
        assert not read(pilot), name
    assert simulated["client_scores"] == {"north": 0.25}
    assert pilot["client_spread"] == {"mean": 0.5}
    pages = "".join(
        browse.get(path, params={"run": "pilot", "after": ""}).text
        for path in ("/api/report", "/api/updates", "/export")
    ) + json.dumps(entries(browse))
    for secret in ("my secret", "5ecret", "0.123", "0.0625"):
        assert secret not in pages


def test_the_command_explains_mistakes_in_one_sentence(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("x")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        mistakes = {
            ("dashboard", "notes"): (2, "has no run"),
            ("dashboard", "--bind", taken): (1, "Address already in use"),
            ("dashboard", "--token", "abc"): (2, "has 3 characters"),
            ("dashboard", "--no-token", "--bind", "0.0.0.0:0"): (2, "can be reached from others"),
            ("serve", "toy-classification", "--dashboard", "--dashboard-bind", taken): (1, "Address already in use"),
        }
        for words, (status, sentence) in mistakes.items():
            monkeypatch.setattr("sys.argv", ["motet", *words])
            with pytest.raises(SystemExit) as end:
                cli.main()
            error = capsys.readouterr().err
            assert (end.value.code, error.count("\n"), sentence in error) == (status, 1, True), error
    assert {path.name for path in runs.iterdir()} == {"done", "half"}, "no folder is left behind"
