"""The same rounds over every network end in the same bits as in one process, whatever happens to the links meanwhile."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.networks import MOSQUITTO, Crew, Ends, door, hello, mosquitto, played, side

from motet.algorithms import fedavg, isolated
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.privacy import distributed
from motet.secure import SECURE
from motet.transport import grpc as over_grpc
from motet.transport.admission import ClientReady, hash_token
from motet.transport.client_connection import ClientConnection, ServerLink
from motet.transport.connections import Connections
from motet.transport.framing import CHUNK_HEADER_BYTES, OutgoingMessage
from motet.transport.grpc import GrpcServerLink, TlsFiles, serve_grpc
from motet.transport.local_broker import LocalBroker
from motet.transport.mqtt import BrokerConfig, MqttServerLink, serve_mqtt
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import deserialize, serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
RunRounds = Callable[..., FederatedRun]
Open = Callable[[Connections], Callable[[], ServerLink]]


@pytest.fixture(params=["memory", "grpc", "mqtt over mosquitto", "mqtt over our own broker"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Make links listen; what it gives is how a client dials."""
    opened: list[Connections] = []

    def grpc(links: Connections) -> Callable[[], ServerLink]:
        address = serve_grpc(links, "127.0.0.1:0")
        return lambda: GrpcServerLink(address)

    def mqtt(broker: BrokerConfig) -> Open:
        def listen(links: Connections) -> Callable[[], ServerLink]:
            serve_mqtt(links, broker)
            return lambda: MqttServerLink(broker)

        return listen

    def kept(listen: Open) -> Open:
        return lambda links: opened.append(links) or listen(links)  # type: ignore[func-returns-value]

    match request.param:
        case "memory":
            yield lambda links: lambda: Ends(links)
        case "grpc":
            yield kept(grpc)
        case "mqtt over mosquitto":
            if MOSQUITTO is None:
                pytest.skip("mosquitto is not installed (apt install mosquitto)")
            with mosquitto(tmp_path) as address:
                yield kept(mqtt(BrokerConfig(address, chunk=20_000)))
                for links in opened:
                    links.stop()
        case _:
            broker = LocalBroker("127.0.0.1:0")
            yield kept(mqtt(BrokerConfig(broker.address, chunk=20_000)))
            for links in opened:
                links.stop()
            broker.stop()
    if request.param == "grpc":
        for links in opened:
            links.stop()


def test_rounds_over_a_network_end_in_the_same_bits(network: Open, federation: Federation, rounds: RunRounds) -> None:
    algorithm = fedavg(SOLVER)
    links = Connections(door(*federation.clients))
    dial, crew = network(links), Crew()
    names = [*federation.clients]
    for share in (names[::2], names[1::2]):
        crew.add(dial, tuple(share), side(federation, algorithm))
    links.wait_for(len(names), lambda here: None)
    over, here = played(links, federation, algorithm), rounds(federation, algorithm)
    assert serialize(over.state) == serialize(here.state)
    assert over.mailbox.traffic == here.mailbox.traffic
    assert over.look_at_clients() == here.look_at_clients()
    links.close("all is done", over=True)
    crew.join()
    assert crew.ends == ["all is done"] * 2
    assert not links.refused


@pytest.mark.parametrize("protocol", [name for name in SECURE if name != "none"])
def test_secure_sums_over_a_network_open_to_the_same_bits(
    protocol: str, network: Open, federation: Federation, rounds: RunRounds
) -> None:
    """Keys and masks are new each time and leave no trace; the noise inside the sum is the same because it is seeded."""
    algorithm = fedavg(SOLVER)
    veils = {"secure": SECURE[protocol](), "private": distributed(1.0, 0.1, seeded=True)}
    links = Connections(door(*federation.clients))
    dial, crew = network(links), Crew()
    for name in federation.clients:
        crew.add(dial, (name,), side(federation, algorithm, **veils))
    links.wait_for(len(federation.clients), lambda here: None)
    over = played(links, federation, algorithm, 1, **veils)
    assert serialize(over.state) == serialize(rounds(federation, algorithm, 1, **veils).state)
    links.close("all is done", over=True)
    crew.join()
    assert crew.ends == ["all is done"] * len(federation.clients)
    assert not links.refused


def test_memories_stay_with_the_clients(
    network: Open, federation: Federation, rounds: RunRounds, tmp_path: Path
) -> None:
    algorithm = isolated(SOLVER)
    links = Connections(door(*federation.clients))
    dial, crew = network(links), Crew()
    sides = {name: side(federation, algorithm, tmp_path / name) for name in federation.clients}
    for name, made in sides.items():
        crew.add(dial, (name,), made)
    links.wait_for(len(sides), lambda here: None)
    over, here = played(links, federation, algorithm), rounds(federation, algorithm)
    for name, made in sides.items():
        assert over.memories.get("isolated", name) is None
        assert torch.equal(made.journal.get("isolated", name).flat, here.memories.get("isolated", name).flat)
    links.close(over=True)
    crew.join()


# ---- links that break ---------------------------------------------------------------------------------------------------


class Brittle:
    """Dials connections in memory, and lets some of them break after so many messages."""

    def __init__(self, links: Connections, *lives: int) -> None:
        self.links, self.lives, self.made = links, [*lives], 0

    def __call__(self) -> ServerLink:
        self.made += 1
        ends = Ends(self.links)
        life = self.lives.pop(0) if self.lives else 10**9
        whole = ends.send

        def send(parcel: Any) -> None:
            if ends.sent >= life:
                ends.cut()
            whole(parcel)

        ends.send = send  # type: ignore[method-assign]
        return ends


@pytest.mark.parametrize("lives", [(2,), (2, 2, 2), (3, 1, 2), (1,)])
def test_a_broken_link_is_mended_and_the_round_goes_on(
    lives: tuple[int, ...], federation: Federation, rounds: RunRounds
) -> None:
    """A hello and a ready are two messages; the third is the first answer, which is lost with the link, and asked for again."""
    algorithm = isolated(SOLVER)
    links = Connections(door(*federation.clients))
    dial, crew = Brittle(links, *lives), Crew()
    made = side(federation, algorithm)
    crew.add(dial, tuple(federation.clients), made)
    played(links, federation, algorithm)
    here = rounds(federation, algorithm)
    assert dial.made == 1 + len(lives)
    for name in federation.clients:  # what was asked twice was not trained twice
        assert torch.equal(made.journal.get("isolated", name).flat, here.memories.get("isolated", name).flat)
    links.close(over=True)
    crew.join()


def test_a_client_that_died_comes_back_with_its_memory(
    federation: Federation, rounds: RunRounds, tmp_path: Path
) -> None:
    algorithm = isolated(SOLVER)
    links = Connections(door(*federation.clients))
    names = tuple(federation.clients)
    crew = Crew()
    first = crew.add(lambda: Ends(links), names, side(federation, algorithm, tmp_path))
    plan = played(links, federation, algorithm, 1)
    first.close()
    links.wait_for(0, lambda here: None)
    second = side(federation, algorithm, tmp_path)  # another process would find the same files
    crew.add(lambda: Ends(links), names, second)
    links.wait_for(len(names), lambda here: None)
    _again(plan, 1, 3)
    here = rounds(federation, algorithm, 3)
    for name in names:
        assert torch.equal(second.journal.get("isolated", name).flat, here.memories.get("isolated", name).flat)
    links.close(over=True)


def _again(running: FederatedRun, first: int, last: int) -> None:
    from motet.core.program import Round
    from motet.core.script import run_script

    federation = running.plan.federation
    for index in range(first, last):
        rnd = Round(
            index,
            last,
            tuple(federation.clients),
            federation.seed.derive("round", index),
            federation.server_context(index),
        )
        running.mailbox.round = index
        running.state = run_script(running.plan.algorithm.round(running.state, rnd), running.ask, running.executor.run)


def test_a_server_that_died_asks_again_and_clients_answer_as_they_did(
    federation: Federation, rounds: RunRounds, tmp_path: Path
) -> None:
    """The second server begins at round 1 of 3, although the clients have already done round 2."""
    algorithm = isolated(SOLVER)
    names = tuple(federation.clients)
    made = side(federation, algorithm, tmp_path)
    places = [Connections(door(*names, session="one"))]
    crew = Crew()
    crew.add(lambda: Ends(places[-1]), names, made)
    running = played(places[0], federation, algorithm, 2)
    at_one = running.mailbox.traffic.requests // 2  # numbers after the first round, as a checkpoint has them
    places.append(Connections(door(*names, session="two")))
    places[0].close()
    places[1].wait_for(len(names), lambda here: None)
    running.mailbox.transport, running.mailbox.traffic.requests = places[1], at_one
    _again(running, 1, 3)
    here = rounds(federation, algorithm, 3)
    for name in names:
        assert torch.equal(made.journal.get("isolated", name).flat, here.memories.get("isolated", name).flat)
    places[1].close(over=True)
    crew.join()


def test_a_client_that_stays_away_has_failed_or_is_left_out(federation: Federation) -> None:
    algorithm = fedavg(SOLVER)
    names = [*federation.clients]
    for policy in ("drop", "fail"):
        links, crew = Connections(door(*names), absence=0.2), Crew()
        crew.add(lambda links=links: Ends(links), tuple(names[1:]), side(federation, algorithm))  # type: ignore[misc]
        links.wait_for(len(names) - 1, lambda here: None)
        wait_policy = WaitPolicy(quorum=0.5, on_error=policy)  # type: ignore[arg-type]
        if policy == "drop":
            running = played(links, federation, algorithm, 1, wait_policy)
            assert running.mailbox.lost == [(0, names[0], f"{names[0]} has been away for 0.2 s")]
        else:
            with pytest.raises(RunError, match=f"{names[0]} has been away"):
                played(links, federation, algorithm, 1, wait_policy)
        links.close(over=True)


# ---- keys, certificates, passwords ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates that it signed for the server and for client-0."""
    folder = tmp_path_factory.mktemp("papers")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in ("localhost", "client-0"):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


def ended(dial: Callable[[], ServerLink], links: Connections, **greeting: Any) -> str | Exception:
    """How a client's attempt to join ends: let in (and sent home at once), or refused."""
    found: list[str | Exception] = []

    def prepare(welcome: Any) -> Any:
        found.append("let in")
        raise RunError("enough")

    def attend() -> None:
        try:
            ClientConnection(
                dial, hello(*greeting.pop("names", ("client-0",)), **greeting), prepare, give_up=1.0
            ).attend()
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=attend, daemon=True)
    thread.start()
    thread.join(60)
    return found[0]


def test_grpc_over_tls_lets_in_only_whom_the_authority_signed(papers: Path) -> None:
    links = Connections(door("client-0", "client-1"))
    address = serve_grpc(
        links, "127.0.0.1:0", TlsFiles(papers / "localhost.key", papers / "localhost.pem", papers / "ca.pem")
    )
    mine = TlsFiles(papers / "client-0.key", papers / "client-0.pem", papers / "ca.pem")
    assert ended(lambda: GrpcServerLink(address, mine), links) == "let in"
    stolen = ended(lambda: GrpcServerLink(address, mine), links, names=("client-1",))
    assert "your certificate is for 'client-0', not for 'client-1'" in str(stolen)
    for nobody in (TlsFiles(authority=papers / "ca.pem"), None):
        assert isinstance(ended(lambda nobody=nobody: GrpcServerLink(address, nobody), links), RunError)  # type: ignore[misc]
    links.stop()


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")
def test_mqtt_over_tls_with_a_password(papers: Path, tmp_path: Path) -> None:
    words = tmp_path / "passwords"
    words.write_text("motet:secret\n")
    words.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(words)], check=True)
    settings = ("allow_anonymous false", f"password_file {words}", f"certfile {papers / 'localhost.pem'}",
                f"keyfile {papers / 'localhost.key'}")  # fmt: skip
    with mosquitto(tmp_path, *settings) as address:
        links = Connections(door("client-0"))
        known = BrokerConfig(address, user="motet", password="secret", authority=papers / "ca.pem")
        serve_mqtt(links, known)
        assert ended(lambda: MqttServerLink(known), links) == "let in"
        wrong = BrokerConfig(address, user="motet", password="guess", authority=papers / "ca.pem")
        assert isinstance(ended(lambda: MqttServerLink(wrong), links), RunError)
        with pytest.raises(RunError, match="did not let us in"):
            serve_mqtt(Connections(door("client-0")), wrong)
        links.stop()


def test_who_has_no_token_is_not_let_in() -> None:
    links = Connections(door("client-0", tokens={"client-0": hash_token("right")}))
    assert ended(lambda: Ends(links), links, token="right") == "let in"
    for names, token in ((("client-0",), "wrong"), (("client-0",), ""), (("client-9",), "right")):
        refused = ended(lambda: Ends(links, "stranger"), links, names=names, token=token)
        assert isinstance(refused, ConfigError)
        assert "with this token is not on the server's list" in str(refused)
    assert links.refused == {"stranger": 3}


def test_another_recipe_or_another_version_is_refused_at_the_door() -> None:
    links = Connections(door("client-0"))
    assert "the server speaks protocol" in str(ended(lambda: Ends(links), links, protocol=99))
    assert "your recipe has digest other" in str(ended(lambda: Ends(links), links, digest="other"))
    assert "is none of the clients of this run" in str(ended(lambda: Ends(links), links, names=("x",)))


def test_a_long_silence_is_no_reason_to_give_up(federation: Federation) -> None:
    """What counts is how long the server could not be reached, not how long it had nothing to ask."""
    links = Connections(door(*federation.clients))
    made: list[Ends | None] = []

    def dial() -> ServerLink:
        made.append(None if len(made) == 1 else Ends(links))
        if made[-1] is None:
            raise ConnectionError("nobody there")
        return made[-1]

    crew = Crew()
    member = crew.add(dial, tuple(federation.clients), side(federation, fedavg(SOLVER)), give_up=600)
    links.wait_for(len(federation.clients), lambda here: None)
    member.heard -= 3600
    assert made[0] is not None
    made[0].cut()
    links.wait_for(len(federation.clients), lambda here: None)
    links.close("all is done", over=True)
    crew.join()
    assert crew.ends == ["all is done"]
    assert len(made) == 3


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")
def test_a_broker_that_can_hold_little_is_not_told_more(
    federation: Federation, rounds: RunRounds, tmp_path: Path
) -> None:
    """A broker drops what it cannot queue, whatever the quality of service; so both ends hold back."""
    algorithm = fedavg(SOLVER)
    names = tuple(federation.clients)
    with mosquitto(tmp_path, "allow_anonymous true", "max_queued_messages 40", "max_inflight_messages 5") as address:
        broker = BrokerConfig(address, chunk=200)
        links, crew = Connections(door(*names)), Crew()
        serve_mqtt(links, broker)
        for name in names:
            crew.add(lambda: MqttServerLink(broker), (name,), side(federation, algorithm))
        links.wait_for(len(names), lambda here: None)
        over = played(links, federation, algorithm, 1)
        links.close(over=True)
        crew.join()
    assert serialize(over.state) == serialize(rounds(federation, algorithm, 1).state)
    assert not links.refused


def test_a_message_far_above_the_networks_limit_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one above 2 GB does, which no network takes in one piece; what does not fit into memory lies in a file meanwhile."""
    small = [
        (name, 4096 + CHUNK_HEADER_BYTES if "message_length" in name else value) for name, value in over_grpc._OPTIONS
    ]
    monkeypatch.setattr(over_grpc, "CHUNK", 4096)
    monkeypatch.setattr(over_grpc, "_OPTIONS", small)
    value = Weighted(Params.from_tensors({"w": torch.arange(500_000.0)}), 2.0)
    links = Connections(door("client-0"), room=ReceiveBuffers(budget=100_000))
    line = GrpcServerLink(serve_grpc(links, "127.0.0.1:0"))
    line.send(OutgoingMessage.of(hello("client-0")))
    line.receive(30.0)
    line.send(OutgoingMessage.of(ClientReady("print")))
    links.send(Request(1, "client-0", 0, "p.m", value))
    asked = deserialize(line.receive(30.0) or b"")
    line.send(OutgoingMessage.of(Reply(1, "client-0", asked.payload)))
    reply = links.receive(30.0)
    assert reply is not None
    assert serialize(reply.value) == serialize(value)
    assert OutgoingMessage.of(reply).size > 400 * 4096
    assert links.room.used < 100_000
    line.close()
    links.stop()
