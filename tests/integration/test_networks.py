"""Rounds over every network give the same bits as in one process, whatever happens to the links."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.networks import (
    MOSQUITTO,
    ClientThreads,
    FakeFlower,
    MemoryLink,
    make_admission,
    make_join_request,
    make_setup,
    run_mosquitto,
    run_remote_rounds,
    wait_for_clients,
)
from tests.runs import run_rounds, start_run

from motet.algorithms import fedavg, isolated
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.certificates import create_certificates
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.privacy import distributed
from motet.secure import SECURE
from motet.transport import grpc as grpc_transport
from motet.transport.admission import ClientReady, RunFinished, hash_token
from motet.transport.client_connection import ClientConnection, ClientSetup, ServerLink
from motet.transport.connections import Connections
from motet.transport.framing import CHUNK_HEADER_BYTES, OutgoingMessage
from motet.transport.grpc import GrpcServerLink, serve_grpc
from motet.transport.local_broker import LocalBroker
from motet.transport.mqtt import MqttServerLink, serve_mqtt
from motet.transport.mqtt_broker import BrokerConfig
from motet.transport.mqtt_encryption import ServerKey
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.requests import Reply, Request
from motet.transport.tls_diagnosis import TlsFiles
from motet.transport.wait_policy import WaitPolicy
from motet.wire import deserialize, serialize

ROOT = Path(__file__).parents[2]
SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
Connect = Callable[[], ServerLink]
Listen = Callable[[Connections], Connect]
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")


def listen_in_memory(connections: Connections) -> Connect:
    return lambda: MemoryLink(connections)


def listen_grpc(connections: Connections) -> Connect:
    address = serve_grpc(connections, "127.0.0.1:0")
    return lambda: GrpcServerLink(address)


def listen_mqtt(broker: BrokerConfig, key: ServerKey, address: str | None = None) -> Listen:
    def listen(connections: Connections) -> Connect:
        serve_mqtt(connections, broker, key)
        clients_broker = BrokerConfig(address or broker.address, chunk_bytes=broker.chunk_bytes)
        return lambda: MqttServerLink(clients_broker, key.public, "any client")

    return listen


@pytest.fixture(params=["memory", "grpc", "flower", "mqtt with mosquitto", "mqtt with the local broker"])
def listen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listen]:
    """A function that makes connections listen on a network, and returns how a client connects."""
    opened: list[Connections] = []

    def recorded(listen: Listen) -> Listen:
        def listen_and_record(connections: Connections) -> Connect:
            opened.append(connections)
            return listen(connections)

        return listen_and_record

    def stop_listening() -> None:
        for connections in opened:
            connections.stop_listening()

    match request.param:
        case "memory":
            yield listen_in_memory
        case "grpc":
            yield recorded(listen_grpc)
            stop_listening()
        case "flower":
            with FakeFlower() as flower:
                yield recorded(flower.listen)
                stop_listening()
        case "mqtt with mosquitto":
            if MOSQUITTO is None:
                pytest.skip("mosquitto is not installed (apt install mosquitto)")
            with run_mosquitto(tmp_path) as address:
                yield recorded(listen_mqtt(BrokerConfig(address, chunk_bytes=20_000), ServerKey.generate()))
                stop_listening()
        case _:
            key = ServerKey.generate()
            broker = LocalBroker(BrokerConfig("127.0.0.1:0", chunk_bytes=20_000), key)
            yield recorded(listen_mqtt(broker.server_config, key, broker.address))
            stop_listening()
            broker.stop()


def read_state(setup: ClientSetup, client: str) -> torch.Tensor:
    flat: torch.Tensor = setup.journal.get("isolated", client).flat
    return flat


def assert_same_states(setups: dict[str, ClientSetup], in_process: FederatedRun) -> None:
    """Check that remote clients have the same states as those of a run in this process."""
    for client, setup in setups.items():
        assert torch.equal(read_state(setup, client), in_process.storage.client_states.get("isolated", client).flat)


def test_rounds_over_a_network_give_the_same_bits(listen: Listen, federation: Federation) -> None:
    algorithm = fedavg(SOLVER)
    connections = Connections(make_admission(*federation.clients))
    connect, threads = listen(connections), ClientThreads()
    clients = [*federation.clients]
    for share in (clients[::2], clients[1::2]):
        threads.start(connect, tuple(share), make_setup(federation, algorithm))
    wait_for_clients(connections, len(clients))
    remote, in_process = run_remote_rounds(connections, federation, algorithm), run_rounds(federation, algorithm)
    assert serialize(remote.state) == serialize(in_process.state)
    assert remote.engine.mailbox.traffic == in_process.engine.mailbox.traffic
    assert remote.evaluator.evaluate_clients().scores == in_process.evaluator.evaluate_clients().scores
    connections.close(RunFinished("all is done"))
    threads.join()
    assert threads.results == ["all is done"] * 2
    assert not connections.rejected


@pytest.mark.parametrize("protocol", [name for name in SECURE if name != "none"])
def test_secure_sums_over_a_network_give_the_same_bits(protocol: str, listen: Listen, federation: Federation) -> None:
    """Keys and masks are new each time and cancel. The noise in the sum is the same because it is seeded."""
    algorithm = fedavg(SOLVER)
    wrappers = {"secure": SECURE[protocol](), "privacy": distributed(1.0, 0.1, seeded=True)}
    connections = Connections(make_admission(*federation.clients))
    connect, threads = listen(connections), ClientThreads()
    for client in federation.clients:
        threads.start(connect, (client,), make_setup(federation, algorithm, **wrappers))
    wait_for_clients(connections, len(federation.clients))
    remote = run_remote_rounds(connections, federation, algorithm, 1, **wrappers)
    assert serialize(remote.state) == serialize(run_rounds(federation, algorithm, 1, **wrappers).state)
    connections.close(RunFinished("all is done"))
    threads.join()
    assert threads.results == ["all is done"] * len(federation.clients)
    assert not connections.rejected


def test_states_stay_with_the_clients(listen: Listen, federation: Federation, tmp_path: Path) -> None:
    algorithm = isolated(SOLVER)
    connections = Connections(make_admission(*federation.clients))
    connect, threads = listen(connections), ClientThreads()
    setups = {client: make_setup(federation, algorithm, tmp_path / client) for client in federation.clients}
    for client, setup in setups.items():
        threads.start(connect, (client,), setup)
    wait_for_clients(connections, len(setups))
    remote = run_remote_rounds(connections, federation, algorithm)
    assert all(remote.storage.client_states.get("isolated", client) is None for client in setups)
    assert_same_states(setups, run_rounds(federation, algorithm))
    connections.close(RunFinished("over"))
    threads.join()


# ---- Broken links ---------------------------------------------------------------------------------------------------


class FragileNetwork:
    """Opens in-memory links. The first ones break after a number of messages."""

    def __init__(self, connections: Connections, *message_counts: int) -> None:
        self.connections, self.message_counts, self.links_opened = connections, [*message_counts], 0

    def connect(self) -> ServerLink:
        self.links_opened += 1
        link = MemoryLink(self.connections)
        message_count = self.message_counts.pop(0) if self.message_counts else 10**9
        send = link.send

        def send_or_break(message: OutgoingMessage) -> None:
            if link.messages_sent >= message_count:
                link.cut()
            send(message)

        link.send = send_or_break  # type: ignore[method-assign]
        return link


@pytest.mark.parametrize("message_counts", [(2,), (2, 2, 2), (3, 1, 2), (1,)])
def test_a_round_continues_after_a_link_breaks(message_counts: tuple[int, ...], federation: Federation) -> None:
    """Joining takes two messages. The third is the first reply, which is lost with the link and requested again."""
    algorithm = isolated(SOLVER)
    connections = Connections(make_admission(*federation.clients))
    network, threads = FragileNetwork(connections, *message_counts), ClientThreads()
    setup = make_setup(federation, algorithm)
    threads.start(network.connect, tuple(federation.clients), setup)
    run_remote_rounds(connections, federation, algorithm)
    assert network.links_opened == 1 + len(message_counts)
    # A client that got its request twice has not trained twice.
    assert_same_states(dict.fromkeys(federation.clients, setup), run_rounds(federation, algorithm))
    connections.close(RunFinished("over"))
    threads.join()


def continue_rounds(running: FederatedRun, first: int, last: int) -> None:
    assert running.rounds == first
    for _ in range(first, last):
        running.engine.run_round()


def test_a_restarted_client_continues_with_its_state(federation: Federation, tmp_path: Path) -> None:
    algorithm = isolated(SOLVER)
    connections = Connections(make_admission(*federation.clients))
    clients = tuple(federation.clients)
    threads = ClientThreads()
    first = threads.start(lambda: MemoryLink(connections), clients, make_setup(federation, algorithm, tmp_path))
    running = run_remote_rounds(connections, federation, algorithm, 1)
    first.close()
    second_setup = make_setup(federation, algorithm, tmp_path)  # finds the files of the first
    threads.start(lambda: MemoryLink(connections), clients, second_setup)
    wait_for_clients(connections, len(clients))
    continue_rounds(running, 1, 3)
    assert_same_states(dict.fromkeys(clients, second_setup), run_rounds(federation, algorithm, 3))
    connections.close(RunFinished("over"))


def test_a_restarted_server_gets_the_same_answers_again(federation: Federation, tmp_path: Path) -> None:
    """The second server begins with round 1 of 3, although the clients have already done it."""
    algorithm = isolated(SOLVER)
    clients = tuple(federation.clients)
    setup = make_setup(federation, algorithm, tmp_path)
    servers = [Connections(make_admission(*clients, session="one"))]
    threads = ClientThreads()
    threads.start(lambda: MemoryLink(servers[-1]), clients, setup)
    first = start_run(federation, algorithm, 3, connect=lambda runtime: servers[0], is_remote=True)
    first.engine.run_round()
    checkpoint = first.engine.progress
    first.engine.run_round()
    servers.append(Connections(make_admission(*clients, session="two")))
    servers[0].close()
    wait_for_clients(servers[1], len(clients))
    second = start_run(federation, algorithm, 3, connect=lambda runtime: servers[1], is_remote=True)
    second.engine.restore(checkpoint)
    continue_rounds(second, 1, 3)
    assert_same_states(dict.fromkeys(clients, setup), run_rounds(federation, algorithm, 3))
    servers[1].close(RunFinished("over"))
    threads.join()


@pytest.mark.parametrize("on_error", ["drop", "fail"])
def test_a_client_that_stays_disconnected_has_failed(on_error: Any, federation: Federation) -> None:
    algorithm = fedavg(SOLVER)
    absent, *present = federation.clients
    connections, threads = Connections(make_admission(absent, *present), reconnect_timeout=0.2), ClientThreads()
    threads.start(lambda: MemoryLink(connections), tuple(present), make_setup(federation, algorithm))
    wait_for_clients(connections, len(present))
    wait_policy = WaitPolicy(quorum=0.5, on_error=on_error)
    error = "disconnected for 0.2 s"
    if on_error == "drop":
        running = run_remote_rounds(connections, federation, algorithm, 1, wait_policy)
        assert running.engine.mailbox.failures == [(0, absent, error)]
    else:
        with pytest.raises(RunError, match=f"{absent}: {error}"):
            run_remote_rounds(connections, federation, algorithm, 1, wait_policy)
    connections.close(RunFinished("over"))


def test_of_two_processes_with_one_name_the_first_ends(listen: Listen, federation: Federation) -> None:
    """They would take the place of each other without end, and mix their states in a secure sum."""
    connections, threads = Connections(make_admission(*federation.clients)), ClientThreads()
    connect, setup = listen(connections), make_setup(federation, fedavg(SOLVER))
    threads.start(connect, tuple(federation.clients), setup)
    wait_for_clients(connections, len(federation.clients))
    threads.start(connect, tuple(federation.clients), setup)
    threads.threads[0].join(60)
    (error,) = threads.results
    assert isinstance(error, ConfigError)
    assert "only one process may use a name" in str(error)
    wait_for_clients(connections, len(federation.clients))
    connections.close(RunFinished("all is done"))
    threads.join()
    assert threads.results[1:] == ["all is done"]


def test_a_client_does_not_give_up_after_a_long_silence(federation: Federation) -> None:
    """Only the time without a link counts, not the time without a request."""
    connections = Connections(make_admission(*federation.clients))
    attempts: list[MemoryLink | None] = []

    def connect() -> ServerLink:
        attempts.append(None if len(attempts) == 1 else MemoryLink(connections))
        if attempts[-1] is None:
            raise ConnectionError("nobody there")
        return attempts[-1]

    threads = ClientThreads()
    setup = make_setup(federation, fedavg(SOLVER))
    connection = threads.start(connect, tuple(federation.clients), setup, give_up_after=600)
    wait_for_clients(connections, len(federation.clients))
    connection.last_connected -= 3600
    assert attempts[0] is not None
    attempts[0].cut()
    wait_for_clients(connections, len(federation.clients))
    connections.close(RunFinished("all is done"))
    threads.join()
    assert threads.results == ["all is done"]
    assert len(attempts) == 3


# ---- Certificates, passwords and tokens -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and certificates that it signed for localhost and for client-0."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("localhost", "client-0"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


@pytest.fixture(autouse=True)
def _strict_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the default context of every Python check as that of Python 3.13 does. `openssl req` writes no such certificates."""
    create_context = ssl.create_default_context

    def create_strict_context(**options: Any) -> ssl.SSLContext:
        context = create_context(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strict_context)


def try_to_join(connect: Connect, client: str = "client-0", seconds: float = 1.0, **options: Any) -> str | Exception:
    """Return "accepted", or the error with which the attempt to join ends."""
    results: list[str | Exception] = []

    def build_setup(acceptance: Any) -> ClientSetup:
        results.append("accepted")
        raise RunError("stop here")

    def run() -> None:
        try:
            ClientConnection(connect, make_join_request(client, **options), build_setup, give_up_after=seconds).run()
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return results[0]


def test_grpc_with_tls_accepts_only_clients_with_a_signed_certificate(certificates: Path, tmp_path: Path) -> None:
    connections = Connections(make_admission("client-0", "client-1"))
    authority = certificates / "ca.pem"
    server_files = TlsFiles(certificates / "localhost.key", certificates / "localhost.pem", authority)
    address = serve_grpc(connections, "127.0.0.1:0", server_files)
    client_files = TlsFiles(certificates / "client-0.key", certificates / "client-0.pem", authority)
    assert try_to_join(lambda: GrpcServerLink(address, client_files)) == "accepted"
    stolen = try_to_join(lambda: GrpcServerLink(address, client_files), "client-1")
    assert "your certificate is for 'client-0', not for 'client-1'" in str(stolen)
    create_certificates(tmp_path, ["client-0"])  # of another authority
    foreign, mixed = (
        TlsFiles(tmp_path / "server.key", f / "localhost.pem", authority) for f in (tmp_path, certificates)
    )
    (tmp_path / "server.pem").rename(tmp_path / "localhost.pem")
    for tls, reason in (
        (TlsFiles(authority=authority), "accepts only clients with a certificate; pass --key and --cert"),
        (foreign, f"does not accept the certificate {tmp_path / 'localhost.pem'}"),
        (mixed, "are not a certificate and its key"),
    ):
        error = try_to_join(lambda tls=tls: GrpcServerLink(address, tls), seconds=600.0)
        assert isinstance(error, ConfigError)
        assert reason in str(error)
    connections.stop_listening()


def test_grpc_writes_no_lines_of_its_own(certificates: Path) -> None:
    """They would be lines of another format in a JSON log, and anyone who connects without TLS could cause them."""
    script = """
import socket, sys
from pathlib import Path
from tests.networks import make_admission
from motet.transport.connections import Connections
from motet.transport.grpc import serve_grpc
from motet.transport.tls_diagnosis import TlsFiles

folder = Path(sys.argv[1])
connections = Connections(make_admission("client-0"))
address = serve_grpc(connections, "127.0.0.1:0", TlsFiles(folder / "localhost.key", folder / "localhost.pem"))
with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=60) as stranger:
    stranger.sendall(b"not TLS")
    print("closed" if stranger.recv(1) == b"" else "answered")
connections.stop_listening()
"""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    command = [sys.executable, "-c", script, str(certificates)]
    process = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "closed\n", "")


def test_tls_failures_that_stay_end_the_attempt_to_join(certificates: Path, tmp_path: Path) -> None:
    create_certificates(tmp_path, ["server.example"])  # another authority, and another name
    right, wrong = TlsFiles(authority=tmp_path / "ca.pem"), TlsFiles(authority=certificates / "ca.pem")

    def join(address: str, tls: TlsFiles | None) -> str | Exception:
        return try_to_join(lambda: GrpcServerLink(address, tls), seconds=600.0)  # it would try again for 10 minutes

    connections = Connections(make_admission("client-0"))
    address = serve_grpc(connections, "127.0.0.1:0", TlsFiles(tmp_path / "server.key", tmp_path / "server.pem"))
    for tls, reason in (
        (wrong, f"is not valid with --ca {certificates / 'ca.pem'}"),
        (right, "is not for the name '127.0.0.1'"),
        (None, "uses TLS; pass the certificate of its authority with --ca"),
    ):
        error = join(address, tls)
        assert isinstance(error, ConfigError)
        assert reason in str(error)
    connections.stop_listening()
    for tls in (wrong, right, None):  # a server that is down may come back
        error = try_to_join(lambda tls=tls: GrpcServerLink(address, tls), seconds=0.2)
        assert isinstance(error, RunError)
        assert "cannot be reached" in str(error)
    plain = Connections(make_admission("client-0"))
    error = join(serve_grpc(plain, "127.0.0.1:0"), right)
    assert "does not use TLS" in str(error)
    plain.stop_listening()


@pytest.mark.parametrize(
    ("since", "days", "problem"), [(9, -1, "has expired"), (-1, 800, "is not yet valid")], ids=["expired", "early"]
)
def test_a_running_server_uses_a_renewed_certificate(
    since: int, days: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_certificates(tmp_path, ["127.0.0.1"])
    with monkeypatch.context() as patch:
        patch.setattr("motet.experiment.deploy.certificates.CLOCK_SKEW", timedelta(days=since))
        patch.setattr("motet.experiment.deploy.certificates.SERVER_DAYS", days)
        create_certificates(tmp_path, ["127.0.0.1"], replace=True)
    connections = Connections(make_admission("client-0"))
    address = serve_grpc(connections, "127.0.0.1:0", TlsFiles(tmp_path / "server.key", tmp_path / "server.pem"))
    connect = partial(GrpcServerLink, address, TlsFiles(authority=tmp_path / "ca.pem"))
    error = try_to_join(connect, seconds=0.2)
    assert isinstance(error, RunError)  # a client tries again until the certificate is renewed
    assert f"is not valid now: certificate {problem}" in str(error)
    create_certificates(tmp_path, ["127.0.0.1"], replace=True)
    assert try_to_join(connect) == "accepted"
    (tmp_path / "server.key").write_text("not a key")
    assert try_to_join(connect) == "accepted"
    connections.stop_listening()


@pytest.mark.parametrize("damaged", ["server.key", "server.pem"])
def test_a_server_does_not_start_with_a_certificate_that_cannot_be_used(damaged: str, tmp_path: Path) -> None:
    create_certificates(tmp_path, ["127.0.0.1"])
    (tmp_path / damaged).write_text("not PEM")
    with pytest.raises(ConfigError, match=r"server.pem and --key .*server.key are not a certificate and its key"):
        serve_grpc(
            Connections(make_admission()), "127.0.0.1:0", TlsFiles(tmp_path / "server.key", tmp_path / "server.pem")
        )


@needs_mosquitto
def test_mqtt_with_tls_needs_the_password(certificates: Path, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("motet:secret\n")
    passwords.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    settings = (
        "allow_anonymous false",
        f"password_file {passwords}",
        f"certfile {certificates / 'localhost.pem'}",
        f"keyfile {certificates / 'localhost.key'}",
    )
    with run_mosquitto(tmp_path, *settings) as address:
        connections = Connections(make_admission("client-0"))
        authority = certificates / "ca.pem"
        right = BrokerConfig(address, user="motet", password="secret", authority=authority)
        wrong = BrokerConfig(address, user="motet", password="guess", authority=authority)
        key = ServerKey.generate()
        serve_mqtt(connections, right, key)
        assert try_to_join(lambda: MqttServerLink(right, key.public, "client-0")) == "accepted"
        error = try_to_join(lambda: MqttServerLink(wrong, key.public, "client-0"), seconds=600.0)
        assert isinstance(error, ConfigError), "a wrong password stays wrong, so the client does not try again"
        assert "rejected the user 'motet' (Not authorized); check --user and MOTET_MQTT_PASSWORD." in str(error)
        with pytest.raises(RunError, match="rejected the server"):
            serve_mqtt(Connections(make_admission("client-0")), wrong, key)
        connections.stop_listening()


@needs_mosquitto
def test_tls_failures_at_a_broker_end_the_attempt_to_join(certificates: Path, tmp_path: Path) -> None:
    create_certificates(tmp_path, ["server.example"])  # another authority
    right, wrong, key = certificates / "ca.pem", tmp_path / "ca.pem", ServerKey.generate()
    tls = (f"certfile {certificates / 'localhost.pem'}", f"keyfile {certificates / 'localhost.key'}")
    plain = ("allow_anonymous true",)
    for settings, authority, reason in (
        ((*plain, *tls), wrong, f"the certificate of the broker .* is not valid with --ca {wrong}"),
        ((*plain, *tls), None, "the broker at .* uses TLS; pass the certificate of its authority with --ca"),
        ((*plain, *tls), tmp_path / "ca.key", "ca.key is not a certificate"),
        (plain, right, "the broker at .* does not use TLS"),
        (
            (*plain, *tls, f"cafile {right}", "require_certificate true"),
            right,
            "accepts only clients with a certificate",
        ),
    ):
        with run_mosquitto(tmp_path, *settings) as address:
            broker = BrokerConfig(address, authority=authority)
            connect = partial(MqttServerLink, broker, key.public, "client-0")
            error = try_to_join(connect, seconds=600.0)
            assert isinstance(error, ConfigError) and re.search(reason, str(error)), error


def test_a_client_without_its_token_is_rejected() -> None:
    connections = Connections(make_admission("client-0", token_hashes={"client-0": hash_token("right")}))
    assert try_to_join(lambda: MemoryLink(connections), token="right") == "accepted"
    for client, token in (("client-0", "wrong"), ("client-0", ""), ("client-9", "right")):
        error = try_to_join(lambda: MemoryLink(connections, "stranger"), client, token=token)
        assert isinstance(error, ConfigError)
        assert "with this token is not on the server's list" in str(error)
    assert connections.rejected == {"stranger": 3}


def test_a_client_can_join_again_while_its_earlier_link_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the earlier link must not release what the new link has just claimed."""
    connections = Connections(make_admission("client-0"))
    earlier, later = MemoryLink(connections), MemoryLink(connections)
    earlier.send(OutgoingMessage.from_value(make_join_request("client-0")))
    claim, endings = connections.admission.rejection_reason, list[threading.Thread]()

    def claim_while_the_earlier_link_ends(*args: Any) -> str | None:
        reason = claim(*args)
        endings.append(threading.Thread(target=earlier.cut))
        endings[0].start()
        endings[0].join(0.5)  # it ends only later if claims are registered at once
        return reason

    monkeypatch.setattr(connections.admission, "rejection_reason", claim_while_the_earlier_link_ends)
    later.send(OutgoingMessage.from_value(make_join_request("client-0")))
    endings[0].join(60)
    later.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    assert connections.links == {"client-0": later.server_end}


def test_another_protocol_recipe_or_name_is_rejected() -> None:
    connections = Connections(make_admission("client-0"))

    def connect() -> ServerLink:
        return MemoryLink(connections)

    assert "the server uses protocol" in str(try_to_join(connect, protocol=99))
    assert "your recipe has digest other" in str(try_to_join(connect, digest="other"))
    assert "is not a client of this run" in str(try_to_join(connect, "x"))


# ---- Limits of the network ------------------------------------------------------------------------------------------


@needs_mosquitto
def test_flow_control_respects_a_broker_with_small_queues(federation: Federation, tmp_path: Path) -> None:
    """A broker drops messages that it cannot queue, at any quality of service. So both ends limit what they send."""
    algorithm = fedavg(SOLVER)
    clients = tuple(federation.clients)
    settings = ("allow_anonymous true", "max_queued_messages 40", "max_inflight_messages 5")
    with run_mosquitto(tmp_path, *settings) as address:
        broker, key = BrokerConfig(address, chunk_bytes=200), ServerKey.generate()
        connections, threads = Connections(make_admission(*clients)), ClientThreads()
        serve_mqtt(connections, broker, key)
        for client in clients:
            connect = partial(MqttServerLink, broker, key.public, client)
            threads.start(connect, (client,), make_setup(federation, algorithm))
        wait_for_clients(connections, len(clients))
        remote = run_remote_rounds(connections, federation, algorithm, 1)
        connections.close(RunFinished("over"))
        threads.join()
    assert serialize(remote.state) == serialize(run_rounds(federation, algorithm, 1).state)
    assert not connections.rejected


def test_a_message_may_be_much_larger_than_the_limit_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a message above 2 GB in practice. What does not fit into memory is in a file meanwhile."""
    options = [
        (name, 4096 + CHUNK_HEADER_BYTES if "message_length" in name else value)
        for name, value in grpc_transport._OPTIONS
    ]
    monkeypatch.setattr(grpc_transport, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(grpc_transport, "_OPTIONS", options)
    value = Weighted(Params.from_tensors({"w": torch.arange(500_000.0)}), 2.0)
    connections = Connections(make_admission("client-0"), buffers=ReceiveBuffers(budget=100_000))
    link = GrpcServerLink(serve_grpc(connections, "127.0.0.1:0"))
    link.send(OutgoingMessage.from_value(make_join_request("client-0")))
    link.receive(30.0)
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    connections.send(Request(1, "client-0", 0, "p.m", value))
    request = deserialize(link.receive(30.0) or b"")
    link.send(OutgoingMessage.from_value(Reply(1, "client-0", request.payload)))
    reply = connections.receive(30.0)
    assert reply is not None
    assert serialize(reply.value) == serialize(value)
    assert OutgoingMessage.from_value(reply).size > 400 * 4096
    assert connections.buffers.used < 100_000
    link.close()
    connections.stop_listening()
