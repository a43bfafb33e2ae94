"""What server and clients say and do if the broker between them fails, or does not let them through."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.networks import MOSQUITTO, find_free_port, make_admission, run_mosquitto

from motet.transport import mqtt
from motet.transport.connections import Connections
from motet.transport.mqtt import MqttServerLink, serve_mqtt
from motet.transport.mqtt_broker import LONGEST_PAUSE, BrokerConfig
from motet.transport.mqtt_encryption import ServerKey

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")


def test_the_server_says_that_the_broker_is_gone_and_returns_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the log would blame the clients."""
    caplog.set_level(logging.WARNING, "motet")
    port, key = find_free_port(), ServerKey.generate()
    connections = Connections(make_admission("a"))
    with run_mosquitto(tmp_path, port=port) as address:
        serve_mqtt(connections, BrokerConfig(address), key)
        link = MqttServerLink(BrokerConfig(address), key.public, "a")
    assert link.broken.wait(60)
    with run_mosquitto(tmp_path, port=port):
        for _ in range(20):
            try:
                MqttServerLink(BrokerConfig(address), key.public, "a").close()
                break
            except ConnectionError as error:  # the server has not returned yet
                assert "no server is online on channel 'motet'" in str(error)
        connections.stop_listening()
    link.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"the broker at {address} is gone, so no client can be reached; trying to connect again",
        f"the server is connected to the broker at {address} again",
    ]


def test_a_server_that_lost_its_broker_tries_as_often_as_a_client() -> None:
    client = BrokerConfig("127.0.0.1:1883").create_client(b"", "motet/server", b"", retain_will=True)
    assert client._reconnect_max_delay == LONGEST_PAUSE


def test_a_client_that_finds_no_server_says_which_channel_it_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "FIND_SERVER_TIMEOUT", 1.0)
    with run_mosquitto(tmp_path) as address, pytest.raises(ConnectionError, match="is online on channel 'ward'"):
        MqttServerLink(BrokerConfig(address, channel="ward"), ServerKey.generate().public, "a")


def test_a_client_that_may_not_write_its_topics_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acl = tmp_path / "acl"
    acl.write_text("user server\ntopic readwrite motet/#\npattern write motet/up/%u/#\npattern read motet/server\n")
    acl.chmod(0o600)
    key = ServerKey.generate()
    connections = Connections(make_admission("a"))
    with run_mosquitto(tmp_path, "allow_anonymous true", f"acl_file {acl}") as address:
        serve_mqtt(connections, BrokerConfig(address, user="server", password="x"), key)
        monkeypatch.setattr(mqtt, "FIND_SERVER_TIMEOUT", 1.0)
        with pytest.raises(ConnectionError, match=r"check the key, and that the user 'b' may write motet/up/a/#"):
            MqttServerLink(BrokerConfig(address, user="b", password="x"), key.public, "a")
        connections.stop_listening()
