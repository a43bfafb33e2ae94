"""What server and clients say and do if the broker between them fails, or does not let them through."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.networks import MOSQUITTO, make_admission, run_mosquitto

from motet.transport import mqtt
from motet.transport.connections import Connections
from motet.transport.mqtt import MqttServerLink, serve_mqtt
from motet.transport.mqtt_broker import BrokerConfig
from motet.transport.mqtt_encryption import ServerKey

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt install mosquitto)")


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
