"""The server and its clients survive what others, and the broker itself, can publish over MQTT."""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from tests.networks import MOSQUITTO, make_admission, make_join_request, run_mosquitto

from motet.core.errors import ConfigError
from motet.experiment.deploy.client_listener import open_listener
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.recipe.run_config import RunConfig
from motet.transport import mqtt
from motet.transport.admission import ClientReady, JoinAccepted, RunFinished
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.local_broker import LocalBroker
from motet.transport.mqtt import MqttServerLink, serve_mqtt
from motet.transport.mqtt_broker import DEFAULT_USER, BrokerConfig
from motet.transport.mqtt_encryption import ClientHandshake, LinkNames, ServerKey, derive_broker_password
from motet.transport.requests import Reply, Request
from motet.wire import deserialize
from motet.wire.format import MAGIC, WIRE_VERSION

needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")
TOKEN = "the token of a"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerConfig]:
    with run_mosquitto(tmp_path) as address:
        yield BrokerConfig(address)


@contextmanager
def serve(broker: BrokerConfig, key: ServerKey) -> Iterator[Connections]:
    connections = Connections(make_admission("a", "b"))
    serve_mqtt(connections, broker, key)
    yield connections
    connections.stop_listening()


@contextmanager
def attacker(broker: BrokerConfig, on_message: Callable[[str, bytes], None] = lambda *_: None) -> Iterator[Client]:
    """A client that reads all topics and may write to all of them, as the broker itself can."""
    client, subscribed = Client(CallbackAPIVersion.VERSION2), threading.Event()
    client.username_pw_set(broker.user or "attacker", broker.password)
    client.on_message = lambda _, __, packet: on_message(packet.topic, packet.payload)
    client.on_subscribe = lambda *_: subscribed.set()
    broker.connect(client)
    client.loop_start()
    client.subscribe("#", 1)
    assert subscribed.wait(120)
    yield client
    client.disconnect()
    client.loop_stop()


def join(broker: BrokerConfig, key: ServerKey, client: str = "a") -> MqttServerLink:
    link = MqttServerLink(broker, key.public, client)
    link.send(OutgoingMessage.from_value(make_join_request(client, token=TOKEN)))
    assert isinstance(deserialize(link.receive(10) or b""), JoinAccepted)
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    return link


def check_client_is_served(connections: Connections, link: MqttServerLink) -> None:
    """Send a request to client a, and check that its reply arrives."""
    connections.wait_for_clients(1, lambda _: None, 0.1)
    connections.send(Request(7, "a", 0, "p.m", "question"))
    assert deserialize(link.receive(10) or b"").payload == "question"
    link.send(OutgoingMessage.from_value(Reply(7, "a", "answer")))
    reply = connections.receive(10)
    assert reply is not None and reply.value == "answer"


def make_overflow() -> bytes:
    header = b'{"!":"tensor","dtype":"float32","shape":[0,%d,%d]}' % (2**47, 2**47)
    return struct.pack("<4sHHI", MAGIC, WIRE_VERSION, 0, len(header)) + header


@needs_mosquitto
def test_the_last_message_arrives_after_the_goodbye_of_the_server(broker: BrokerConfig) -> None:
    key = ServerKey.generate()
    with serve(broker, key) as connections:
        link = join(broker, key)
        connections.wait_for_clients(1, lambda _: None, 0.1)
        link._handle_presence(b"")  # the broker keeps no order between topics
        connections.close(RunFinished("over"))
        assert isinstance(deserialize(link.receive(10) or b""), RunFinished)
        link.close()


@needs_mosquitto
def test_a_packet_with_an_impossible_shape_does_not_silence_the_server(broker: BrokerConfig) -> None:
    """It is sent in plaintext, as before there was encryption, and by somebody who knows the key of the server."""
    key, packet = ServerKey.generate(), next(OutgoingMessage((memoryview(make_overflow()),)).chunks(0, 1000))
    assert len(packet) <= 128
    with serve(broker, key) as connections, attacker(broker) as client:
        client.publish(broker.topic("up", "a", 32 * "0"), packet, 1).wait_for_publish(10)
        stranger = MqttServerLink(broker, key.public, "stranger")
        stranger.send(OutgoingMessage((memoryview(make_overflow()),)))
        assert "a tensor of shape [0, 140737488355328" in deserialize(stranger.receive(10) or b"").reason
        check_client_is_served(connections, join(broker, key))


@needs_mosquitto
def test_the_broker_reads_no_token_name_or_text(broker: BrokerConfig) -> None:
    key, packets = ServerKey.generate(), list[bytes]()
    with serve(broker, key) as connections, attacker(broker, lambda _, payload: packets.append(payload)):
        link = join(broker, key)
        check_client_is_served(connections, link)
        link.close()
    everything = b"".join(packets)
    assert len(packets) > 6
    assert not any(secret in everything for secret in (TOKEN.encode(), b"question", b"answer", b"JoinRequest", MAGIC))


@needs_mosquitto
def test_forged_repeated_and_closing_packets_do_not_disturb_a_link(broker: BrokerConfig) -> None:
    key, seen = ServerKey.generate(), list[tuple[str, bytes]]()
    with serve(broker, key) as connections, attacker(broker, lambda *packet: seen.append(packet)) as client:
        link = join(broker, key)
        connections.wait_for_clients(1, lambda _: None, 0.1)
        forged = [b"", b"+" + bytes(8), secrets.token_bytes(65), secrets.token_bytes(1000), *(p for _, p in seen)]
        forged.append(ClientHandshake(key.public, LinkNames("motet", "a", "0" * 32), b"").hello)
        for topic in (link.up, link.down):
            for payload in forged:
                client.publish(topic, payload, 1).wait_for_publish(10)
        check_client_is_served(connections, link)
        assert not link.broken.is_set()
        assert not connections.rejected


@needs_mosquitto
def test_a_broker_that_answers_for_the_server_gets_no_join_request(
    broker: BrokerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "FIND_SERVER_TIMEOUT", 1.0)
    with serve(broker, ServerKey.generate()) as connections:
        with pytest.raises(ConnectionError, match="no server with this --server-key"):
            MqttServerLink(broker, ServerKey.generate().public, "a")
        assert not connections.admitted


@needs_mosquitto
def test_a_flood_of_handshakes_shuts_nobody_out(broker: BrokerConfig) -> None:
    key = ServerKey.generate()
    with serve(broker, key) as connections, attacker(broker) as client:
        link = join(broker, key)
        for k in range(300):
            names = LinkNames("motet", "flood", f"{k:032x}")
            client.publish(
                broker.topic("up", names.client, names.link), ClientHandshake(key.public, names, b"").hello, 1
            )
        time.sleep(0.2)
        check_client_is_served(connections, link)
        assert len(connections.pending.entries) <= 128


@needs_mosquitto
def test_the_permissions_in_the_guide_let_a_client_join(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/deployment.md").read_text("utf-8")
    start = guide.index("user server\n")
    (tmp_path / "acl").write_text(guide[start : guide.index("```", start)])
    (tmp_path / "acl").chmod(0o600)
    key = ServerKey.generate()
    with run_mosquitto(tmp_path, "allow_anonymous true", f"acl_file {tmp_path / 'acl'}") as address:
        server, client = (BrokerConfig(address, user=user, password="x") for user in ("server", "a"))
        with serve(server, key) as connections:
            check_client_is_served(connections, join(client, key))
            with attacker(BrokerConfig(address, user="b", password="x")) as other:
                other.publish(client.topic("server"), b"", 1, retain=True).wait_for_publish(10)  # "the server is gone"
            check_client_is_served(connections, join(client, key))


def connect_to(address: str, user: str | None, password: str | None) -> Any:
    """Return the broker's answer to a client."""
    client, answers = Client(CallbackAPIVersion.VERSION2), list[Any]()
    answered = threading.Event()
    client.on_connect = lambda _, __, ___, reason, ____: (answers.append(reason), answered.set())
    client.on_disconnect = lambda *_: answered.set()
    if user is not None:
        client.username_pw_set(user, password)
    BrokerConfig(address).connect(client)
    client.loop_start()
    assert answered.wait(120)
    client.disconnect()
    client.loop_stop()
    return bool(answers) and not answers[0].is_failure


def test_clients_may_subscribe_while_the_built_in_broker_waits_within_a_loop() -> None:
    broker = LocalBroker(BrokerConfig("127.0.0.1:0"), ServerKey.generate())
    try:
        assert broker.broker is not None
        subscriptions = broker.broker._subscriptions
        subscriptions["first"] = []
        for topic in subscriptions:  # as when a client connects
            subscriptions[f"{topic} and another"] = []
        for topic, _ in subscriptions.items():  # as when a message is sent
            del subscriptions[topic]
        assert not subscriptions
    finally:
        broker.stop()


def may_subscribe(config: BrokerConfig, *topics: str) -> list[bool]:
    """Return for each topic whether the broker lets a client read it."""
    client, answers, answered = Client(CallbackAPIVersion.VERSION2), list[Any](), threading.Event()
    client.on_subscribe = lambda _, __, ___, reasons, ____: (answers.extend(reasons), answered.set())
    client.on_connect = lambda *_: client.subscribe([(config.topic(topic), 1) for topic in topics])
    client.username_pw_set(config.user or "", config.password)
    config.connect(client)
    client.loop_start()
    assert answered.wait(120)
    client.disconnect()
    client.loop_stop()
    return [not reason.is_failure for reason in answers]


@pytest.mark.filterwarnings("error::DeprecationWarning:amqtt.plugins.topic_checking")
def test_the_built_in_broker_accepts_nobody_without_a_password() -> None:
    key = ServerKey.generate()
    broker = LocalBroker(BrokerConfig("127.0.0.1:0"), key)
    try:
        assert not connect_to(broker.address, None, None)
        assert not connect_to(broker.address, "client", "guess")
        assert not connect_to(broker.address, "server", "")
        with serve(broker.server_config, key) as connections:
            link = join(BrokerConfig(broker.address), key)
            check_client_is_served(connections, link)
            link.close()
            client = BrokerConfig(broker.address, user=DEFAULT_USER, password=derive_broker_password(key.public))
            assert may_subscribe(client, "down/+/+", "server", "up/+/+", "#") == [True, True, False, False]
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bind": "0.0.0.0:0"}, r"pass TLS files \(--key, --cert\)"),
        ({"broker": "broker.example.org:1883"}, "the broker at broker.example.org:1883 is on another machine"),
    ],
)
def test_a_broker_on_another_machine_needs_tls(options: dict[str, str], message: str, tmp_path: Path) -> None:
    settings = {"data": {"name": "toy-classification", "limit": 60}, "model": {"name": "tiny"}, "transport": "mqtt"}
    network = NetworkOptions(**options, allow_anyone=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        open_listener(RunConfig.from_settings("r", settings), tmp_path, network)
