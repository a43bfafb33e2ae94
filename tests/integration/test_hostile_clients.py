"""What a client can do to a server over a real connection, and cannot: wrong versions, replays, floods, silence, long words."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as Visit
from urllib.request import urlopen

import grpc
import pytest
import torch
from tests.networks import door, hello

from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.report.status_server import start_status_server
from motet.transport import grpc as over_grpc
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, hash_token
from motet.transport.connections import Connections
from motet.transport.framing import UNADMITTED_LIMIT, OutgoingMessage
from motet.transport.grpc import METHOD, SERVICE, GrpcServerLink, serve_grpc
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

VALUE = Weighted(Params.from_tensors({"w": torch.arange(400_000.0)}), 2.0)


@pytest.fixture
def links() -> Iterator[Connections]:
    tokens = {"a": hash_token("token of a"), "b": hash_token("token of b")}
    made = Connections(door("a", "b", tokens=tokens), absence=600.0)
    yield made
    made.stop()


@pytest.fixture
def address(links: Connections) -> str:
    return serve_grpc(links, "127.0.0.1:0")


def heard(line: GrpcServerLink) -> Any:
    data = line.receive(30.0)
    assert data is not None, "the server said nothing"
    return deserialize(data)


def member(address: str, name: str) -> GrpcServerLink:
    line = GrpcServerLink(address)
    line.send(OutgoingMessage.of(hello(name, token=f"token of {name}")))
    assert isinstance(heard(line), JoinAccepted)
    line.send(OutgoingMessage.of(ClientReady("print")))
    return line


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.01)


def test_b_is_served(links: Connections, address: str) -> None:
    """What the other tests end with: somebody honest comes in, is asked, and is heard."""
    served(links, address, "b")


def served(links: Connections, address: str, name: str, number: int = 8) -> None:
    line = member(address, name)
    links.send(Request(number, name, 0, "p.m", VALUE))
    asked = heard(line)
    assert isinstance(asked, Request) and torch.equal(asked.payload.value.flat, VALUE.value.flat)
    line.send(OutgoingMessage.of(Reply(number, name, VALUE)))
    reply = links.receive(30.0)
    assert reply is not None and (reply.id, reply.client) == (number, name)
    line.close()


def test_another_version_is_told_so_and_sent_away(links: Connections, address: str) -> None:
    for wrong in (replace(hello("a", token="token of a"), protocol=99), Reply(1, "a"), None):
        line = GrpcServerLink(address)
        line.send(OutgoingMessage.of(wrong))
        answer = heard(line)
        assert isinstance(answer, Rejection)
        assert wrong is None or "protocol" in answer.why or "not expected here" in answer.why
        line.close()
    assert links.names == {}
    served(links, address, "b")


def test_an_answer_that_is_said_again_counts_once(links: Connections, address: str) -> None:
    line = member(address, "a")
    links.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(heard(line), Request)
    for number in (7, 7, 7, 6):
        line.send(OutgoingMessage.of(Reply(number, "a", VALUE)))
    until(lambda: links.stale["a"] == 3)
    assert [reply.id for reply in links.inbox] == [7]
    stolen = Reply(8, "b", VALUE)
    links.send(Request(8, "b", 0, "p.m", None))
    line.send(OutgoingMessage.of(stolen))
    until(lambda: links.refused["a"] == 1)
    assert len(links.inbox) == 1
    line.close()


def test_those_who_say_nothing_are_sent_away_and_others_are_served(
    links: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of connections takes places only until its silence is noticed."""
    monkeypatch.setattr(over_grpc, "SILENCE", 2.0)
    monkeypatch.setattr(over_grpc, "MOST_LINKS", 8)
    address = serve_grpc(links, "127.0.0.1:0")
    flood = [GrpcServerLink(address) for _ in range(8)]
    for line in flood:
        with pytest.raises(ConnectionError):
            while True:
                line.receive(30.0)
    served(links, address, "b")
    for line in flood:
        line.close()


def test_a_message_that_trickles_in_keeps_nobody_waiting(links: Connections, address: str) -> None:
    """A member begins an answer and never ends it; another's is heard meanwhile, and the first is asked again later."""
    slow = member(address, "a")
    links.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(heard(slow), Request)
    first, *_ = OutgoingMessage.of(Reply(7, "a", VALUE)).chunks(slow.sent, 1000)
    slow.outbox.put(first)
    until(lambda: links.room.used > 0)
    served(links, address, "b")
    slow.close()
    until(lambda: "a" in links.present()["away"])
    until(lambda: links.room.used == 0)
    again = member(address, "a")
    assert heard(again).id == 7
    again.close()


def test_a_stranger_cannot_announce_much(links: Connections, address: str) -> None:
    line = GrpcServerLink(address)
    first, *_ = OutgoingMessage((memoryview(bytes(UNADMITTED_LIMIT + 1)),)).chunks(0, 1000)
    line.outbox.put(first)
    answer = heard(line)
    assert isinstance(answer, Rejection)
    assert f"at most {UNADMITTED_LIMIT} are taken" in answer.why
    line.close()
    assert links.room.used == 0


def test_a_disk_that_is_full_is_said_to_the_client(
    links: Connections, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size: int) -> Any:
        raise OSError(28, "No space left on device")

    line = member(address, "a")
    links.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(heard(line), Request)
    monkeypatch.setattr(links.room, "store", full)
    line.send(OutgoingMessage.of(Reply(7, "a", VALUE)))
    answer = heard(line)
    assert isinstance(answer, Rejection)
    assert "the server cannot keep your message (No space left on device)" in answer.why
    monkeypatch.undo()
    served(links, address, "b")


def test_long_headers_and_other_methods_are_refused_by_the_network(links: Connections, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        talk = channel.stream_stream(f"/{SERVICE}/{METHOD}")
        with pytest.raises(grpc.RpcError) as wrong:
            next(talk(iter([b"x"]), metadata=[("long", "x" * 2**20)]))
        assert wrong.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(grpc.RpcError) as wrong:
            channel.unary_unary(f"/{SERVICE}/Stop")(b"")
        assert wrong.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as wrong:
            next(talk(iter([bytes(2 * over_grpc.CHUNK)])))
        assert wrong.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert links.names == {}
    served(links, address, "b")


def test_bytes_that_are_no_http_do_not_disturb(links: Connections, address: str) -> None:
    host, _, port = address.rpartition(":")
    for words in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096):
        with socket.create_connection((host, int(port)), 10) as link:
            link.sendall(words)
            link.settimeout(30)
            while link.recv(4096):
                pass
    served(links, address, "b")


def test_the_page_shows_nothing_to_those_without_a_token() -> None:
    secret = {"run": "private name"}
    address, end = start_status_server("127.0.0.1:0", lambda: secret, "word")
    try:
        for path in ("", "status.json", "status.json?token=", "status.json?token=wor", "elsewhere", "?token=word2"):
            with pytest.raises(HTTPError) as refused:
                urlopen(address + path)
            assert refused.value.code == 401
            assert b"private" not in refused.value.read()
        for method in ("POST", "PUT", "DELETE"):
            with pytest.raises(HTTPError) as refused:
                urlopen(Visit(address + "?token=word", method=method, data=b"x"))
            assert refused.value.code == 501
        with pytest.raises(HTTPError) as refused:
            urlopen(Visit(address, headers={"Authorization": "Bearer " + "x" * 100_000}))
        assert refused.value.code == 431
        with urlopen(Visit(address + "status.json", headers={"Authorization": "Bearer word"})) as answer:
            assert b"private name" in answer.read()
    finally:
        end()
