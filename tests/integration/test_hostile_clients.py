"""A server survives hostile clients over a real connection: wrong versions, replays, floods, silence, oversized headers."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import grpc
import pytest
import torch
from tests.networks import make_admission, make_join_request

import motet.transport.grpc
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.report.status_server import start_status_server
from motet.transport import pending_links
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, hash_token
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.grpc import CHUNK_BYTES, METHOD, SERVICE, GrpcServerLink, serve_grpc
from motet.transport.message_limits import JOIN_REQUEST
from motet.transport.pending_links import MAX_STRANGERS
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

VALUE = Weighted(Params.from_tensors({"w": torch.arange(400_000.0)}), 2.0)


@pytest.fixture
def connections() -> Iterator[Connections]:
    token_hashes = {"a": hash_token("token of a"), "b": hash_token("token of b")}
    opened = Connections(make_admission("a", "b", token_hashes=token_hashes), reconnect_timeout=600.0)
    yield opened
    opened.stop_listening()


@pytest.fixture
def address(connections: Connections) -> str:
    return serve_grpc(connections, "127.0.0.1:0")


def receive_value(link: GrpcServerLink) -> Any:
    data = link.receive(30.0)
    assert data is not None, "the server sent nothing"
    return deserialize(data)


def send_value(link: GrpcServerLink, value: object) -> None:
    link.send(OutgoingMessage.from_value(value))


def join(address: str, client: str) -> GrpcServerLink:
    link = GrpcServerLink(address)
    send_value(link, make_join_request(client, token=f"token of {client}"))
    assert isinstance(receive_value(link), JoinAccepted)
    send_value(link, ClientReady("fingerprint"))
    return link


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not is_true():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def check_client_is_served(connections: Connections, address: str, client: str = "b") -> None:
    """Check that an honest client can still join, get a request, and reply."""
    link = join(address, client)
    connections.send(Request(8, client, 0, "p.m", VALUE))
    request = receive_value(link)
    assert isinstance(request, Request) and torch.equal(request.payload.value.flat, VALUE.value.flat)
    send_value(link, Reply(8, client, VALUE))
    reply = connections.receive(30.0)
    assert reply is not None and (reply.id, reply.client) == (8, client)
    link.close()


def test_an_honest_client_is_served(connections: Connections, address: str) -> None:
    check_client_is_served(connections, address)


@pytest.mark.parametrize(
    ("first_message", "reason"),
    [
        (make_join_request("a", token="token of a", protocol=99), "protocol"),
        (Reply(1, "a"), "a Reply is not expected here"),
        (None, "a NoneType is not expected here"),
    ],
)
def test_a_wrong_first_message_is_rejected_with_a_reason(
    first_message: Any, reason: str, connections: Connections, address: str
) -> None:
    link = GrpcServerLink(address)
    send_value(link, first_message)
    answer = receive_value(link)
    assert isinstance(answer, Rejection)
    assert reason in answer.reason
    link.close()
    assert connections.admitted == {}
    check_client_is_served(connections, address)


def test_a_repeated_or_stolen_reply_does_not_reach_the_inbox(connections: Connections, address: str) -> None:
    link = join(address, "a")
    connections.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(receive_value(link), Request)
    for request_id in (7, 7, 7, 6):
        send_value(link, Reply(request_id, "a", VALUE))
    connections.send(Request(8, "b", 0, "p.m", None))
    send_value(link, Reply(8, "b", VALUE))
    wait_until(lambda: connections.rejected["a"] == 1)  # the stolen reply, after all others were processed
    assert [(reply.id, reply.client) for reply in connections.inbox] == [(7, "a")]
    link.close()


def test_silent_connections_are_closed(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_links, "JOIN_TIMEOUT", 0.5)
    address = serve_grpc(connections, "127.0.0.1:0")
    silent = [GrpcServerLink(address) for _ in range(3)]
    for link in silent:
        with pytest.raises(ConnectionError):
            while True:
                link.receive(30.0)
        link.close()


def test_a_flood_of_silent_connections_shuts_nobody_out(connections: Connections, address: str) -> None:
    """The join timeout is far away. Strangers share few places, so a client can always join."""
    flood = [GrpcServerLink(address) for _ in range(MAX_STRANGERS + 20)]
    wait_until(lambda: sum(link.broken.is_set() for link in flood) >= 20)
    check_client_is_served(connections, address)
    assert len(connections.pending.entries) <= MAX_STRANGERS
    for link in flood:
        link.close()


def accepts_streams(address: str) -> bool:
    """Return True if a stranger gets an answer, also a rejection."""
    link = GrpcServerLink(address)
    try:
        send_value(link, make_join_request("b", token="wrong"))
        return isinstance(receive_value(link), Rejection)
    except ConnectionError:
        return False
    finally:
        link.close()


class DeafConnection:
    """One HTTP/2 connection that sends messages on many streams, and allows the server to send no byte of an answer."""

    DATA, HEADERS, SETTINGS, PING, INITIAL_WINDOW = 0, 1, 4, 6, 4

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self.received, self.streams, self.answered = self.socket.makefile("rb"), 0, set[int]()
        self.socket.settimeout(None)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._send_frame(self.SETTINGS, 0, 0, struct.pack(">HI", self.INITIAL_WINDOW, 0))
        threading.Thread(target=self._answer_pings, daemon=True).start()

    def send_on_new_stream(self, *values: object) -> None:
        """Send messages, and wait until the server begins to answer."""
        stream, self.streams = 2 * self.streams + 1, self.streams + 1
        pseudo = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{METHOD}", ":authority": "server"}
        headers = {**pseudo, "content-type": "application/grpc", "te": "trailers"}
        texts = [text.encode() for pair in headers.items() for text in pair]
        literals = [bytes([len(text)]) + text for text in texts]
        self._send_frame(
            self.HEADERS, 4, stream, b"".join(b"\0" + a + b for a, b in zip(*[iter(literals)] * 2, strict=True))
        )
        for number, value in enumerate(values):
            (chunk,) = OutgoingMessage.from_value(value).chunks(number, CHUNK_BYTES)
            self._send_frame(self.DATA, 0, stream, struct.pack(">?I", False, len(chunk)) + chunk)
        wait_until(lambda: stream in self.answered)

    def _answer_pings(self) -> None:
        """Keep the connection alive, and note the streams on which the server begins to answer."""
        while len(head := self._read_head()) == 9:
            body = self.received.read(int.from_bytes(head[:3], "big"))
            if head[3] == self.PING and not head[4]:
                self._send_frame(self.PING, 1, 0, body)
            elif head[3] == self.HEADERS:
                self.answered.add(int.from_bytes(head[5:], "big"))

    def _read_head(self) -> bytes:
        try:
            return self.received.read(9)
        except ConnectionError:
            return b""

    def _send_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body)


@pytest.mark.parametrize("token", ["wrong", "token of a"])
def test_clients_that_read_no_answer_shut_nobody_out(
    token: str, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they do not read keeps their streams open: the rejection of a stranger, or the last message to a client."""
    monkeypatch.setattr(pending_links, "MAX_STRANGERS", 2)
    monkeypatch.setattr(motet.transport.grpc, "MAX_LINKS", 8)
    address = serve_grpc(connections, "127.0.0.1:0")
    deaf = DeafConnection(address)
    for _ in range(8):
        deaf.send_on_new_stream(make_join_request("a", token=token), ClientReady("fingerprint"))
    wait_until(lambda: accepts_streams(address))
    check_client_is_served(connections, address)
    deaf.socket.shutdown(socket.SHUT_RDWR)


def test_an_unfinished_reply_delays_nobody_and_is_requested_again(connections: Connections, address: str) -> None:
    slow = join(address, "a")
    connections.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(receive_value(slow), Request)
    first_chunk, *_ = OutgoingMessage.from_value(Reply(7, "a", VALUE)).chunks(slow.messages_sent, 1000)
    slow.outbox.put(first_chunk)
    wait_until(lambda: connections.buffers.used > 0)
    check_client_is_served(connections, address)
    slow.close()
    wait_until(lambda: "a" in connections.disconnected_clients())
    wait_until(lambda: connections.buffers.used == 0)
    reconnected = join(address, "a")
    assert receive_value(reconnected).id == 7
    reconnected.close()


def test_a_stranger_cannot_announce_a_large_message(connections: Connections, address: str) -> None:
    link = GrpcServerLink(address)
    first_chunk, *_ = OutgoingMessage((memoryview(bytes(JOIN_REQUEST.message_bytes + 1)),)).chunks(0, 1000)
    link.outbox.put(first_chunk)
    answer = receive_value(link)
    assert isinstance(answer, Rejection)
    assert f"at most {JOIN_REQUEST.message_bytes} are accepted" in answer.reason
    link.close()
    assert connections.buffers.used == 0


def test_a_client_is_told_that_the_disk_of_the_server_is_full(
    connections: Connections, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(size: int) -> Any:
        raise OSError(28, "No space left on device")

    link = join(address, "a")
    connections.send(Request(7, "a", 0, "p.m", None))
    assert isinstance(receive_value(link), Request)
    monkeypatch.setattr(connections.buffers, "allocate", fail)
    send_value(link, Reply(7, "a", VALUE))
    answer = receive_value(link)
    assert isinstance(answer, Rejection)
    assert "the server cannot store your message (No space left on device)" in answer.reason
    monkeypatch.undo()
    check_client_is_served(connections, address)


def test_grpc_rejects_long_headers_unknown_methods_and_large_chunks(connections: Connections, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")
        with pytest.raises(grpc.RpcError) as error:
            next(call(iter([b"x"]), metadata=[("long", "x" * 2**20)]))
        assert error.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary(f"/{SERVICE}/Stop")(b"")
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as error:
            next(call(iter([bytes(2 * CHUNK_BYTES)])))
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert connections.admitted == {}
    check_client_is_served(connections, address)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096]
)
def test_bytes_that_are_not_http2_do_no_harm(data: bytes, connections: Connections, address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(data)
        connection.settimeout(30)
        while connection.recv(4096):
            pass
    check_client_is_served(connections, address)


def test_the_status_page_shows_nothing_without_the_token() -> None:
    address, stop = start_status_server("127.0.0.1:0", lambda: {"run": "private name"}, "word")
    try:
        for path in ("", "status.json", "status.json?token=", "status.json?token=wor", "elsewhere", "?token=word2"):
            with pytest.raises(HTTPError) as error:
                urlopen(address + path)
            assert error.value.code == 401
            assert b"private" not in error.value.read()
        for method in ("POST", "PUT", "DELETE"):
            with pytest.raises(HTTPError) as error:
                urlopen(HttpRequest(address + "?token=word", method=method, data=b"x"))
            assert error.value.code == 501
        with pytest.raises(HTTPError) as error:
            urlopen(HttpRequest(address, headers={"Authorization": "Bearer " + "x" * 100_000}))
        assert error.value.code == 431
        with urlopen(HttpRequest(address + "status.json", headers={"Authorization": "Bearer word"})) as answer:
            assert b"private name" in answer.read()
    finally:
        stop()
