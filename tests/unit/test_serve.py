"""Served runs: settings that cannot work with remote data, records of earlier versions, and models of groups."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.networks import ClientThreads, MemoryLink

from motet.core.errors import ConfigError, RunError
from motet.experiment.build.component_builders import resolve_defaults
from motet.experiment.commands.data_inspection import collect_inspections
from motet.experiment.commands.run_folder import load_config
from motet.experiment.commands.serve_run import serve_run
from motet.experiment.commands.server_reports import describe_ignored_settings
from motet.experiment.deploy import client_listener
from motet.experiment.deploy.acceptance import build_acceptance, model_fingerprint
from motet.experiment.deploy.allow_list import add_clients, revoke_clients
from motet.experiment.deploy.certificates import create_certificates, describe_expiry, read_host_names
from motet.experiment.deploy.client_listener import open_listener, public_address
from motet.experiment.deploy.deployment_record import DeploymentRecord
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.deploy.remote_client import JoinOptions, build_client_federation, parse_client_data
from motet.experiment.deploy.remote_federation import build_server_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.admission import PROTOCOL_VERSION, JoinRequest, RunFinished
from motet.transport.client_connection import ClientConnection, ClientSetup
from motet.transport.client_runtime import ClientRuntime
from motet.transport.connections import Connections
from motet.transport.journal import Journal

TOY = {
    "data": {"name": "toy-classification", "limit": 60, "test_limit": 24},
    "model": {"name": "tiny", "max_tokens": 16},
}


@pytest.mark.parametrize("clients", [{"clients": 3}, {"allow": "allowed.yaml"}])
def test_a_development_set_is_rejected_if_clients_bring_their_data(clients: dict[str, object], tmp_path: Path) -> None:
    settings = {**TOY, "data": {**TOY["data"], "dev_share": 0.1}, "transport": {"type": "grpc", **clients}}
    with pytest.raises(ConfigError, match=r"data.dev_share is 0.1.*leave it out"):
        serve_run(RunConfig.from_settings("r", settings), tmp_path / "run", resume=False, log=print)
    assert not (tmp_path / "run").exists()


SECAGG = {"secure": {"type": "secagg"}, "transport": {"type": "grpc", "clients": 2}}
GROUPED = {"secure": {"type": "secagg"}, "robust": {"type": "median", "groups": 3}}
COSTLY = {"privacy": {"type": "local", "clip": 1.0, "noise": 0.1, "budget": 0.01}}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (SECAGG, r"there are 2 clients, but a secure sum needs at least 3 \(secure.min_clients\)"),
        ({**SECAGG, "transport": {"type": "grpc", "allow": "allowed.yaml"}}, "there are 2 clients"),
        ({**GROUPED, "transport": {"type": "grpc", "clients": 4}}, r"robust.groups"),
        ({**COSTLY, "transport": {"type": "grpc", "clients": 4}}, r"the first round alone would spend"),
    ],
)
def test_too_few_clients_are_rejected_before_anybody_joins(
    settings: dict[str, Any], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_clients(Path("allowed.yaml"), ["north", "south"])
    config = RunConfig.from_settings("r", {**TOY, **settings})
    with pytest.raises(ConfigError, match=error):
        serve_run(config, tmp_path / "run", resume=False, log=print)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "message"), [(RunError("the disk is full"), "the disk is full"), (KeyError("secret"), "KeyError; the")]
)
def test_clients_are_told_why_a_run_has_failed(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    def join(connections: Connections) -> str:
        make_setup = ClientSetup(ClientRuntime([], None, None, Journal()), Journal(), connections.admission.fingerprint)  # type: ignore[arg-type]
        request = JoinRequest(PROTOCOL_VERSION, ("north",), "", "")
        client = ClientConnection(lambda: MemoryLink(connections), request, lambda _: make_setup)
        threads.start_connection(client)
        return "memory"

    threads = ClientThreads()
    monkeypatch.setattr("motet.experiment.loop.run_loop.FederatedRun.run_rounds", fail)
    config = RunConfig.from_settings("r", {**TOY, "transport": {"type": "grpc", "clients": 1}})
    with pytest.raises(type(error)):
        serve_run(config, tmp_path / "run", resume=False, log=print, listen=join)
    threads.join()
    (result,) = threads.results
    assert isinstance(result, RunError)
    assert str(result).startswith(f"the run has failed at the server: {message}")
    assert "secret" not in str(result)


@pytest.mark.parametrize("bind", ["nohost", "127.0.0.1:99999", ":8890"])
def test_an_address_to_listen_on_has_a_host_and_a_port(bind: str, tmp_path: Path) -> None:
    config = RunConfig.from_settings("r", {**TOY, "transport": {"type": "grpc", "clients": 1, "bind": bind}})
    with pytest.raises(ConfigError, match=f"listen on is '{bind}'; expected host and port"):
        open_listener(config, tmp_path, NetworkOptions(clients=1, bind=bind))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"type": "grpc", "bind": "0.0.0.0:8555"}, "nothing says who may join"),
        ({"type": "grpc", "bind": "0.0.0.0:8555", "allow_anyone": True}, "pass TLS files"),
        ({"type": "mqtt", "broker": "broker.example:1883", "allow_anyone": True}, "expected TLS"),
    ],
)
def test_a_server_that_is_refused_leaves_no_folder(options: dict[str, Any], error: str, tmp_path: Path) -> None:
    config = RunConfig.from_settings("r", {**TOY, "transport": {"clients": 1, **options}})
    with pytest.raises(ConfigError, match=error):
        serve_run(config, tmp_path / "run", resume=False, log=print)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("hosts", "address", "expected"),
    [
        (["127.0.0.1"], "localhost:8443", "127.0.0.1:8443"),
        (["localhost", "127.0.0.1"], "127.0.0.1:8443", "127.0.0.1:8443"),
        (["server.example", "127.0.0.1"], "localhost:8443", "127.0.0.1:8443"),
        (["127.0.0.1", "server.example"], "0.0.0.0:8443", "server.example:8443"),
        (["2001:db8::1"], "[::]:8443", "[2001:db8::1]:8443"),
        ([], "[::1]:8443", "[::1]:8443"),
    ],
)
def test_clients_join_at_a_name_in_the_certificate(
    hosts: list[str], address: str, expected: str, tmp_path: Path
) -> None:
    if hosts:
        create_certificates(tmp_path, hosts)
    assert public_address(address, read_host_names(tmp_path / "server.pem")) == expected


@pytest.mark.parametrize(("days_left", "warning"), [(31, None), (12, "expires in 12 days"), (-1, "has expired")])
def test_a_server_warns_before_its_certificate_expires(days_left: int, warning: str | None, tmp_path: Path) -> None:
    expires = create_certificates(tmp_path, ["127.0.0.1"])
    now = expires - timedelta(days=days_left, hours=1)
    text = describe_expiry(tmp_path / "server.pem", now)
    assert text is None if warning is None else f"server.pem {warning}" in str(text)
    assert describe_expiry(tmp_path / "server.key", now) is None


def test_the_join_command_has_a_name_in_the_certificate(tmp_path: Path) -> None:
    create_certificates(tmp_path, ["127.0.0.1"])
    files = {"key": str(tmp_path / "server.key"), "cert": str(tmp_path / "server.pem")}
    settings = {"type": "grpc", "clients": 1, "bind": "localhost:0", **files}
    config = RunConfig.from_settings("r", {**TOY, "transport": settings})
    listener = open_listener(config, tmp_path, NetworkOptions(clients=1, bind="localhost:0", **files))
    listener.connections.close()
    assert "--server 127.0.0.1:" in listener.describe_join_command()


def test_the_join_command_of_a_broker_has_what_the_broker_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_listener, "_listen", lambda *_: ("broker.example.org:8883", "KEY"))
    network = {"clients": 1, "broker": "broker.example.org:8883", "ca": "ca.pem", "user": "server"}
    config = RunConfig.from_settings("r", {**TOY, "transport": {"type": "mqtt", **network}})
    command = open_listener(config, tmp_path, NetworkOptions(**network)).describe_join_command()  # type: ignore[arg-type]
    assert "--server broker.example.org:8883 --transport mqtt --server-key KEY --user USER --ca CERTIFICATE" in command


def test_a_page_that_cannot_be_served_ends_the_server_for_its_clients_too(tmp_path: Path) -> None:
    """The threads of clients that had connected meanwhile would keep the process alive."""
    stopped = list[RunFinished | None]()

    def listen(connections: Connections) -> str:
        connections.stop_listening = lambda: stopped.append(connections.run_finished)
        return "127.0.0.1:1"

    config = RunConfig.from_settings("r", {**TOY, "transport": {"type": "grpc", "clients": 1, "status": "0.0.0.0:0"}})
    with pytest.raises(ConfigError, match="which other machines can reach, and there is no token"):
        serve_run(config, tmp_path / "run", resume=False, log=lambda _: None, listen=listen)
    assert [ending is not None and ending.has_failed for ending in stopped] == [True]


def test_a_resumed_run_with_too_few_clients_ends_before_any_of_them_joins(tmp_path: Path) -> None:
    """Otherwise it would wait for them first, perhaps for hours."""
    allow, folder = tmp_path / "allowed.yaml", tmp_path / "run"
    add_clients(allow, ["east", "north", "south"])
    settings = {**TOY, "secure": "secagg", "transport": {"type": "grpc", "allow": str(allow)}}
    config = RunConfig.from_settings("r", settings)

    def listen(connections: Connections) -> str:
        raise RunError("the server listens")

    with pytest.raises(RunError, match="the server listens"):
        serve_run(config, folder, resume=False, log=lambda _: None, listen=listen)
    revoke_clients(allow, ["east"])
    with pytest.raises(ConfigError, match="there are 2 clients, but a secure sum needs at least 3"):
        serve_run(load_config(folder), folder, resume=True, log=lambda _: None, listen=listen)


def test_clients_that_were_revoked_take_no_part_in_a_resumed_run(tmp_path: Path) -> None:
    """They were asked in every round, so that such a run could not be finished."""
    allow = tmp_path / "allowed.yaml"
    add_clients(allow, ["east", "north", "south"])
    options = NetworkOptions(allow=str(allow))
    config = RunConfig.from_settings("r", {**TOY, "transport": {"type": "grpc", "allow": str(allow)}})
    for change, expected in (
        (lambda: None, ("east", "north", "south")),
        (lambda: revoke_clients(allow, ["east"]), ("north", "south")),
        (lambda: add_clients(allow, ["west"]), ("north", "south", "west")),
    ):
        change()
        listener = open_listener(config, tmp_path, options)
        listener.connections.close()
        assert tuple(listener.federation().clients) == expected
        assert tuple(listener.connections.admission.expected) == expected
        reason = listener.connections.admission.rejection_reason
    token = add_clients(allow, ["late"])["late"]
    request = JoinRequest(PROTOCOL_VERSION, ("late",), "", token)
    assert "join when the server is started again" in str(reason(request))


def test_a_resumed_run_says_which_settings_are_ignored(tmp_path: Path) -> None:
    started = RunConfig.from_settings("r", TOY)
    again = RunConfig.from_settings("r", {**TOY, "transport": {"type": "grpc"}})
    assert describe_ignored_settings(again, resolve_defaults(started)) is None
    changed = RunConfig.from_settings("r", {**TOY, "rounds": 7, "wait_policy": {"on_error": "drop"}})
    text = describe_ignored_settings(changed, resolve_defaults(started))
    assert text == (
        "the run keeps the settings that it was started with; ignored: rounds=7 (the run has 10), "
        "wait_policy.on_error=drop (the run has fail)"
    )


def write_letters(path: Path, rows: int = 20) -> Path:
    lines = [f"{path.stem} word {k},{('yes', 'no')[k % 2]}" for k in range(rows)]
    path.write_text("\n".join(["text,label", *lines]))
    return path


@pytest.mark.parametrize(("test", "rows"), [(None, 20), ("held-out.csv", 6)])
def test_the_file_of_the_server_is_the_global_test_set(test: str | None, rows: int, tmp_path: Path) -> None:
    data = {"path": str(write_letters(tmp_path / "public.csv"))}
    if test is not None:
        data["test"] = str(write_letters(tmp_path / test, 6))
    config = RunConfig.from_settings("r", {**TOY, "data": data})
    federation = build_server_federation(config, NetworkOptions(clients=2))
    assert len(federation.server.global_test_rows) == rows
    assert [len(group.global_test_rows) for group in federation.groups] == [rows]
    inspections = collect_inspections(config, federation)
    assert [inspection.corpus.test.rows for inspection in inspections] == [rows]
    if test is None:
        assert inspections[0].table["rows"] == "0 for training, 20 for testing"
        assert inspections[0].table["labels"] == "2 (training + test): no (0 + 10), yes (0 + 10)"
        assert not inspections[0].findings


@pytest.mark.parametrize(("settings", "held_back"), [([], 4), (["data.test_share=0.1"], 2), (["data.test_share=0"], 0)])
def test_a_client_decides_how_many_rows_it_holds_back(settings: list[str], held_back: int, tmp_path: Path) -> None:
    config = RunConfig.from_settings("r", {**TOY, "data": {"path": str(write_letters(tmp_path / "public.csv"))}})
    options = NetworkOptions(clients=1)
    server = build_server_federation(config, options)
    acceptance = build_acceptance(config, server, "0" * 16, "0" * 16)
    data = parse_client_data(write_letters(tmp_path / "own.csv"), settings)
    join = JoinOptions(names=("north",), data=data, config=None, state_folder=tmp_path)
    client = build_client_federation(config, acceptance, join).participant("north")
    assert (client.size, len(client.split("test"))) == (20 - held_back, held_back)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("label=topic", "'label' is set by the server; expected only data.…. Did you mean data.label=…?"),
        ("rounds=3", "'rounds' is set by the server; expected only data.…. Remove it."),
        ("data=other.csv", "data is 'other.csv'; expected options, such as data.name=other.csv."),
    ],
)
def test_a_client_may_set_only_options_of_its_data(setting: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_client_data(write_letters(tmp_path / "own.csv"), [setting])


def test_a_number_of_clients_and_a_list_of_clients_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="both define the clients"):
        NetworkOptions(clients=3, allow="allowed.yaml")


def test_a_record_from_before_there_were_groups_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "deployment.json").write_text(json.dumps({"run": "0123abcd", "clients": ["north"]}))
    record = DeploymentRecord.open(tmp_path)
    assert (record.run, record.clients, record.groups) == ("0123abcd", ["north"], {})


def test_a_record_keeps_the_clients_that_joined(tmp_path: Path) -> None:
    record = DeploymentRecord.open(tmp_path)
    record.add_client("south", "letters")
    record.add_client("north", "")
    again = DeploymentRecord.open(tmp_path)
    assert (again.run, again.clients, again.groups) == (record.run, ["north", "south"], {"south": "letters"})


def test_a_client_with_its_own_data_must_have_the_model_of_its_group(tmp_path: Path) -> None:
    """The server's model may be another."""
    settings = {
        **TOY,
        "groups": [{"name": "letters", "model": {"name": "bilstm"}}],
        "transport": {"type": "grpc", "clients": 1},
    }
    config = RunConfig.from_settings("r", settings)
    listener = open_listener(config, tmp_path, NetworkOptions(clients=1))
    try:
        admission = listener.connections.admission
        labels = listener.local.groups[0].task.labels
        rows = [f"word {k},{labels[k % len(labels)]}" for k in range(20)]
        (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]))
        data = parse_client_data(tmp_path / "own.csv", [])
        options = JoinOptions(names=("north",), data=data, config=None, state_folder=tmp_path)
        federation = build_client_federation(config, admission.acceptance, options)
        assert admission.expected_fingerprint("north") == model_fingerprint(federation.model)
    finally:
        listener.connections.close()
