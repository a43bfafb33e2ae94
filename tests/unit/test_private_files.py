"""What a run, a server or a client writes can be read only by its owner, and the server's paths stay on the server."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from motet.core.errors import ConfigError
from motet.experiment.commands.run_folder import create_new_folder
from motet.experiment.deploy.acceptance import remove_server_files
from motet.experiment.deploy.client_listener import open_listener
from motet.experiment.deploy.join_run import make_connector
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.recipe.run_config import RunConfig
from motet.report.web import write_report
from motet.transport.addresses import is_loopback
from motet.transport.folder_lock import lock_folder
from motet.transport.journal import Journal
from motet.transport.private_files import open_private_file, write_atomically, write_pieces_atomically
from motet.transport.requests import Request
from motet.transport.spill_store import SpillStore


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_run_folders_and_client_state_can_be_read_only_by_their_owner(tmp_path: Path) -> None:
    run = create_new_folder("toy", tmp_path / "runs")
    with lock_folder(tmp_path / "state"):
        assert mode(tmp_path / "state") == 0o700
    store = SpillStore(tmp_path / "spill")
    entry = store.folder / store.put("label", 1, durable=True)
    journal = Journal(tmp_path / "journal")
    journal.begin_request(Request(1, "a", 0, "p.m", None))
    journal.put("p", "a", {"x": 1})
    assert [mode(path) for path in (run, store.folder, tmp_path / "journal")] == [0o700] * 3
    assert [mode(path) for path in (entry, *(tmp_path / "journal").iterdir())] == [0o600] * 2


def test_two_processes_can_write_one_file_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "results.md"

    def pieces() -> Iterator[bytes]:
        yield b"first "
        write_atomically(path, b"of another process")
        yield b"second"

    write_pieces_atomically(path, pieces())
    assert path.read_bytes() == b"first second"
    assert list(tmp_path.iterdir()) == [path]


def test_incomplete_files_are_deleted(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pieces_atomically(tmp_path / "model", pieces())
    assert list(tmp_path.iterdir()) == []
    leftovers = [tmp_path / ".model.1a2b3c4d.part", tmp_path / "checkpoint" / ".state.1a2b3c4d.part"]
    leftovers[1].parent.mkdir()
    for path in leftovers:
        path.write_bytes(b"of a killed process")
    with lock_folder(tmp_path):
        assert not any(path.exists() for path in leftovers)


def test_a_private_file_that_exists_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    with open_private_file(path) as file:
        file.write(b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)


# ---- The server's paths ---------------------------------------------------------------------------------------------


def test_the_acceptance_has_no_path_of_the_server(tmp_path: Path) -> None:
    rows = [f"letter {k} {'good' if k % 2 else 'bad'},{'yes' if k % 2 else 'no'}" for k in range(24)]
    (tmp_path / "letters.csv").write_text("\n".join(["text,label", *rows]))
    settings = {
        "data": {"path": str(tmp_path / "letters.csv")},
        "partition": {"type": "file", "path": str(tmp_path / "secret.h5")},
        "model": {"name": "tiny", "max_tokens": 16},
        "transport": {"type": "grpc", "clients": 1},
    }
    config = RunConfig.from_settings("r", settings)
    listener = open_listener(config, tmp_path, NetworkOptions(clients=1))
    listener.connections.close()
    acceptance = listener.connections.admission.acceptance
    assert str(tmp_path) not in json.dumps([acceptance.config, str(acceptance.groups)])
    assert RunConfig.from_settings("server", acceptance.config).digest == acceptance.digest


def test_groups_have_no_path_of_the_server() -> None:
    groups = [{"name": "a", "data": {"path": "/srv/a.csv"}}, {"name": "b", "data": {"path": "/srv/b.csv"}}]
    shared = remove_server_files(RunConfig.from_settings("r", {"groups": groups}))
    assert "/srv" not in json.dumps(shared.to_dict())


# ---- Connections to other machines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"])
def test_loopback_addresses(address: str) -> None:
    assert is_loopback(address)
    assert make_connector("grpc", address, NetworkOptions(), "north")


@pytest.mark.parametrize(
    "address", ["10.0.0.1:1", "localhost.example.org:1", "127.0.0.1.example.org:1", "[2001:db8::1]:1"]
)
@pytest.mark.parametrize("network", ["grpc", "mqtt"])
def test_a_client_does_not_speak_plaintext_with_another_machine(address: str, network: str) -> None:
    with pytest.raises(ConfigError, match=r"is on another machine.*Pass --ca"):
        make_connector(network, address, NetworkOptions(key="own.key", cert="own.pem", server_key="A" * 43), "north")


@pytest.mark.parametrize("options", [{"clients": 3}, {}])
def test_a_server_that_others_can_reach_needs_to_know_who_may_join(options: dict[str, int], tmp_path: Path) -> None:
    settings = {"data": {"name": "toy-classification", "limit": 60}, "model": {"name": "tiny"}, "transport": "grpc"}
    network = NetworkOptions(bind="0.0.0.0:0", key="k.pem", cert="c.pem", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"nothing says who may join; pass a list of clients"):
        open_listener(RunConfig.from_settings("r", settings), tmp_path, network)


# ---- The report -----------------------------------------------------------------------------------------------------


def test_a_label_cannot_change_the_html_of_the_report(tmp_path: Path) -> None:
    """After "<!--<script>" a browser would read the rest of the page as a part of the data."""
    label = "<!--<script></script>&lt;"
    write_report(tmp_path / "report.html", label, [{"name": label, "labels": [label]}])
    page = (tmp_path / "report.html").read_text("utf-8")
    start = page.index('<script id="data" type="application/json">') + len('<script id="data" type="application/json">')
    data = page[start : page.index("</script>", start)]
    assert not set("<>&") & set(data)
    assert json.loads(data)["runs"][0]["labels"] == [label]
