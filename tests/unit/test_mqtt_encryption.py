"""Only a client and the server with the right key can read, change or repeat what they send over a broker."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.core.errors import ConfigError, WireError
from motet.transport.mqtt_broker import topic_name
from motet.transport.mqtt_encryption import (
    ClientHandshake,
    LinkNames,
    SealedLink,
    ServerHandshake,
    ServerKey,
    is_hello,
    parse_server_key,
)

NAMES = LinkNames("motet", "north", "0" * 32)


def connect(names_at_server: LinkNames = NAMES) -> tuple[SealedLink, SealedLink]:
    key = ServerKey.generate()
    client = ClientHandshake(key.public, NAMES, b"bye")
    server = ServerHandshake(key, names_at_server, client.hello)
    link = client.finish(server.answer)
    assert link is not None
    return link, server.link


def test_both_ends_read_what_the_other_seals() -> None:
    client, server = connect()
    packet = client.seal(b"c", b"my token")
    assert b"my token" not in packet
    assert server.open(packet) == (b"c", b"my token")
    assert client.open(server.seal(b"x")) == (b"x", b"")


@given(st.data())
def test_a_changed_packet_is_ignored(data: st.DataObject) -> None:
    client, server = connect()
    packet = bytearray(client.seal(b"c", b"12345"))
    position = data.draw(st.integers(0, len(packet) - 1))
    packet[position] ^= data.draw(st.integers(1, 255))
    assert server.open(bytes(packet)) is None
    assert server.open(bytes(packet[: data.draw(st.integers(0, len(packet)))])) is None
    assert server.open(client.seal(b"c", b"next")) == (b"c", b"next")


def test_a_packet_cannot_be_repeated_reordered_or_reflected() -> None:
    client, server = connect()
    first, second = client.seal(b"c", b"1"), client.seal(b"c", b"2")
    assert server.open(second) == (b"c", b"2")
    assert server.open(second) is None
    assert server.open(first) is None
    assert client.open(second) is None


def test_a_server_without_the_secret_key_cannot_answer() -> None:
    """The broker knows the public key and answers in place of the server."""
    real, broker = ServerKey.generate(), ServerKey.generate()
    client = ClientHandshake(real.public, NAMES, b"bye")
    broker.public = real.public
    assert client.finish(ServerHandshake(broker, NAMES, client.hello).answer) is None
    assert client.finish(b"") is None
    assert client.finish(ServerHandshake(real, NAMES, client.hello).answer) is not None


def test_a_handshake_cannot_be_moved_to_the_topic_of_another_client() -> None:
    with pytest.raises(AssertionError):
        connect(names_at_server=NAMES._replace(client="south"))


def test_a_public_key_of_low_order_is_rejected() -> None:
    """Such a key would make the shared secret known to everybody."""
    hello = ClientHandshake(ServerKey.generate().public, NAMES, b"bye").hello
    with pytest.raises(WireError, match="is not valid"):
        ServerHandshake(ServerKey.generate(), NAMES, hello[:1] + bytes(32) + hello[33:])


@given(st.binary(max_size=100))
def test_other_first_packets_are_not_a_handshake(packet: bytes) -> None:
    if not is_hello(packet):
        with pytest.raises(WireError, match="a link begins with"):
            ServerHandshake(ServerKey.generate(), NAMES, packet)


def test_only_the_client_knows_how_to_end_its_link() -> None:
    key = ServerKey.generate()
    server = ServerHandshake(key, NAMES, ClientHandshake(key.public, NAMES, bytes(32)).hello)
    assert server.is_closing(bytes(32))
    assert not server.is_closing(b"")
    assert not server.is_closing(b"x" * 32)


def test_a_restarted_server_has_the_same_key(tmp_path: Path) -> None:
    key = ServerKey.load_or_create(tmp_path / "key")
    assert ServerKey.load_or_create(tmp_path / "key").public == key.public == parse_server_key(key.text)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="is not a key of 32 bytes"):
        ServerKey.load_or_create(tmp_path / "key")


@pytest.mark.parametrize("text", [None, "", "short", "!" * 43, "A" * 44])
def test_a_client_needs_the_key_of_the_server(text: str | None) -> None:
    with pytest.raises(ConfigError, match="expected the 43 characters that the server prints"):
        parse_server_key(text)


def test_a_name_is_never_a_wildcard_in_a_topic() -> None:
    assert topic_name("north+1@site") == "north%2B1@site"
