"""A server survives what anybody can publish at its MQTT broker."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from tests.networks import MOSQUITTO, make_admission, make_join_request, run_mosquitto

from motet.transport.admission import JoinAccepted
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.mqtt import BrokerConfig, MqttServerLink, serve_mqtt
from motet.wire import deserialize
from motet.wire.format import MAGIC, WIRE_VERSION

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerConfig]:
    with run_mosquitto(tmp_path) as address:
        yield BrokerConfig(address)


def publish(broker: BrokerConfig, topic: str, *payloads: bytes) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    broker.connect(client)
    client.loop_start()
    for payload in payloads:
        client.publish(topic, payload, 1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def test_a_packet_with_an_impossible_shape_does_not_silence_the_server(broker: BrokerConfig) -> None:
    connections = Connections(make_admission("a"))
    serve_mqtt(connections, broker)
    header = b'{"!":"tensor","dtype":"float32","shape":[0,%d,%d]}' % (2**47, 2**47)
    message = struct.pack("<4sHHI", MAGIC, WIRE_VERSION, 0, len(header)) + header
    packet = next(OutgoingMessage((memoryview(message),)).chunks(0, 1000))
    assert len(packet) <= 128
    publish(broker, broker.topic("up", 32 * "0"), packet)
    time.sleep(0.5)
    link = MqttServerLink(broker)
    link.send(OutgoingMessage.from_value(make_join_request("a")))
    assert isinstance(deserialize(link.receive(10) or b""), JoinAccepted)
    link.close()
    connections.stop_listening()
