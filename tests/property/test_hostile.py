"""Whatever bytes arrive over a network, the server survives, only replies to open requests reach the inbox, and invalid
messages are counted by sender."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import MemoryLink, make_admission, make_join_request

from motet.core.errors import WireError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, RunFinished, hash_token
from motet.transport.connections import MAX_INVALID_MESSAGES, Connections
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.message_limits import JOIN_REQUEST, reply_limits
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize
from motet.wire.format import FLAG_COMPRESSED, MAGIC, WIRE_VERSION

TOKENS = {"a": "", "b": "known only to b"}
VALUE = Weighted(Params.from_tensors({"w": torch.ones(40)}), 2.0)
VALID_REPLY = serialize(Reply(7, "a", VALUE))
MESSAGES = [
    Reply(7, "a", VALUE),
    Reply(7, "b", VALUE),  # for another client
    Reply(6, "a", VALUE),  # to an old request
    Reply(7, "a", error="no"),
    Request(7, "a", 0, "fedavg.train", VALUE),
    make_join_request("a"),
    make_join_request("b"),
    make_join_request(),
    make_join_request("a", "b", "c", "d"),
    make_join_request("a" * 200),
    make_join_request("../../etc/passwd"),
    ClientReady("fingerprint"),
    ClientReady("another"),
    Rejection("go away"),
    RunFinished("over"),
    JoinAccepted("0123abcd", "s", "d", {}, {}),
    VALUE,
    None,
    {"deep": [[[1]]]},
]


@st.composite
def hostile_bytes(draw: st.DrawFn) -> bytes:
    """Random bytes; or a message: complete, with changed bytes, truncated, or joined with another."""
    data = bytearray(serialize(draw(st.sampled_from(MESSAGES))))
    match draw(st.sampled_from(["random", "complete", "changed", "truncated", "joined"])):
        case "random":
            return draw(st.binary(max_size=300))
        case "changed":
            for _ in range(draw(st.integers(1, 5))):
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        case "truncated":
            return bytes(data[: draw(st.integers(0, len(data) - 1))])
        case "joined":
            return bytes(data) + serialize(draw(st.sampled_from(MESSAGES)))
    return bytes(data)


def join(connections: Connections, client: str) -> MemoryLink:
    link = MemoryLink(connections, f"peer of {client}")
    link.send(OutgoingMessage.from_value(make_join_request(client, token=TOKENS[client])))
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    return link


@given(st.lists(hostile_bytes(), max_size=2 * MAX_INVALID_MESSAGES), st.booleans())
@settings(max_examples=300, deadline=None)
def test_only_replies_to_open_requests_reach_the_inbox(messages: list[bytes], is_admitted: bool) -> None:
    token_hashes = {client: hash_token(token) for client, token in TOKENS.items()}
    connections = Connections(make_admission("a", "b", token_hashes=token_hashes), reconnect_timeout=1e9)
    honest = join(connections, "b")
    sender = join(connections, "a") if is_admitted else MemoryLink(connections, "stranger")
    connections.send(Request(7, "a", 0, "p.m", None))
    connections.send(Request(8, "b", 0, "p.m", None))
    for message in messages:
        if not sender.is_cut:
            connections.on_message(sender.server_end, message)
    for reply in connections.inbox:
        assert (reply.id, reply.client) == (7, "a")
    assert len(connections.inbox) <= 1
    assert set(connections.rejected) <= {"a", "stranger"}
    honest.send(OutgoingMessage.from_value(Reply(8, "b", VALUE)))  # other clients are still served
    assert connections.inbox[-1].client == "b"
    assert connections.rejected["b"] == 0


@given(st.lists(hostile_bytes(), max_size=MAX_INVALID_MESSAGES))
@settings(max_examples=100, deadline=None)
def test_a_stranger_is_disconnected_after_its_first_invalid_message(messages: list[bytes]) -> None:
    connections = Connections(make_admission("a"))
    stranger = MemoryLink(connections, "stranger")
    for message in messages:
        if stranger.is_cut:
            break
        connections.on_message(stranger.server_end, message)
        assert stranger.is_cut or stranger.server_end in connections.admitted
    assert connections.rejected["stranger"] <= 1


@given(st.lists(st.binary(max_size=60) | st.integers(0, 5), max_size=30), st.integers(1, 50))
@settings(max_examples=300, deadline=None)
def test_chunks_give_the_original_message_or_none(noise: list[bytes | int], chunk_bytes: int) -> None:
    """Valid chunks follow random bytes and repeated chunks."""
    chunks = [*OutgoingMessage((memoryview(VALID_REPLY),)).chunks(3, chunk_bytes)]
    assembler = MessageAssembler()
    messages: list[bytes] = []

    def add(chunk: bytes) -> None:
        try:
            message = assembler.add(chunk)
        except WireError:
            return
        if message is not None:
            messages.append(bytes(message))

    for item in noise:
        add(item if isinstance(item, bytes) else chunks[item % len(chunks)])
    messages.clear()
    for chunk in chunks:
        add(chunk)
    assert VALID_REPLY in messages or messages == []


@given(st.integers(1, 50))
def test_repeated_chunks_are_ignored(chunk_bytes: int) -> None:
    chunks = [*OutgoingMessage((memoryview(VALID_REPLY),)).chunks(3, chunk_bytes)]
    assembler = MessageAssembler()
    results = [assembler.add(chunk) for chunk in chunks for _ in range(2)]
    assert [bytes(message) for message in results if message is not None] == [VALID_REPLY]


@pytest.mark.parametrize("total", [JOIN_REQUEST.message_bytes + 1, 2**40, 2**63])
def test_a_stranger_cannot_announce_a_large_message(total: int) -> None:
    with pytest.raises(WireError, match="at most"):
        MessageAssembler().add(struct.pack("<IIQ", 0, 0, total) + b"x")


def test_an_announced_message_uses_no_memory_until_it_arrives() -> None:
    assert MessageAssembler(2**36).add(struct.pack("<IIQ", 0, 0, 2**34) + b"x") is None


def is_rejected(data: Any) -> bool:
    try:
        deserialize(data)
    except WireError:
        return True
    return False


@given(st.integers(0, 2**62), st.sampled_from(["float32", "int64", "bool"]))
@settings(max_examples=100, deadline=None)
def test_a_tensor_that_is_announced_and_not_sent_is_rejected(size: int, dtype: str) -> None:
    header = b'{"!":"tensor","dtype":"%s","shape":[%d,1]}' % (dtype.encode(), size)
    message = struct.pack("<4sHHI", MAGIC, WIRE_VERSION, 0, len(header)) + header
    assert is_rejected(message) == (size > 0)


def compress(header: bytes) -> bytes:
    compressed = zlib.compress(header, 9)
    return struct.pack("<4sHHI", MAGIC, WIRE_VERSION, FLAG_COMPRESSED, len(compressed)) + compressed


def test_a_small_message_of_a_stranger_cannot_expand_to_a_large_one() -> None:
    """A kilobyte can expand to a megabyte of JSON, which takes far longer to parse than to send."""
    bomb = compress(b"[" + b"0," * 2_000_000 + b"0]")
    assert len(bomb) < JOIN_REQUEST.message_bytes
    connections = Connections(make_admission("a"))
    stranger = MemoryLink(connections, "stranger")
    connections.on_message(stranger.server_end, bomb)
    assert stranger.is_cut
    rejection = deserialize(stranger.receive(5) or b"")
    assert "header is larger than" in rejection.reason


@pytest.mark.parametrize("shape", ["9" * 4000, ",".join(["9" * 4000] * 2000), ",".join("1" * 65), "true", "1.0", "-1"])
def test_an_impossible_shape_is_rejected(shape: str) -> None:
    """The product of thousands of huge numbers would take hours."""
    header = b'{"!":"tensor","dtype":"float32","shape":[%s]}' % shape.encode()
    with pytest.raises(WireError, match=r"of shape \["):
        deserialize(compress(header))


# ---- Sizes at the edges of integer types ----------------------------------------------------------------------------

EDGES = [-1, 0, 1, 2, *(2**bits + step for bits in (15, 31, 32, 47, 48, 61, 62, 63, 64) for step in (-1, 0, 1))]
SHAPES = st.lists(st.sampled_from(EDGES), max_size=5)


def make_node(kind: str, shape: list[int], layout_shape: list[int]) -> str:
    tensor = json.dumps({"!": kind, "dtype": "float32", "shape": shape})
    tuples = ({"!": "tuple", "items": items} for items in (["w"], [{"!": "tuple", "items": layout_shape}], ["head"]))
    layout = json.dumps({"!": "Layout", "fields": [*tuples]})
    encoded = f'{{"!":"EncodedParams","fields":[{layout},{tensor},{{"!":"tuple","items":[{tensor}]}}]}}'
    params = f'{{"!":"Params","fields":[{layout},{tensor}]}}'
    return f'{{"!":"Reply","fields":[7,"a",[{tensor},{params},{encoded}],null]}}'


@given(st.sampled_from(["tensor", "array", "bytes"]), SHAPES, SHAPES, st.sampled_from(EDGES), st.integers(0, 64))
def test_no_size_overflows(kind: str, shape: list[int], layout_shape: list[int], length: int, body: int) -> None:
    """Whatever the announced sizes, a message is rejected or accepted, and no error ends the network's thread."""
    header = make_node(kind, shape, layout_shape).encode()
    prefix = struct.pack(
        "<4sHHI", MAGIC, WIRE_VERSION, 0, max(0, min(len(header), length)) if length > 1 else len(header)
    )
    connections = Connections(make_admission("a"), reply_limits=reply_limits(1000))
    link = MemoryLink(connections)
    link.send(OutgoingMessage.from_value(make_join_request("a")))
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    connections.send(Request(7, "a", 0, "p.m", None))
    connections.on_message(link.server_end, prefix + header + bytes(body))
    assert len(connections.inbox) + connections.rejected["a"] == 1
    assert not link.is_cut


@given(st.sampled_from(EDGES), st.sampled_from(EDGES), st.sampled_from(EDGES), st.binary(max_size=8))
def test_no_chunk_overflows(number: int, index: int, total: int, body: bytes) -> None:
    fields = [value % 2**bits for value, bits in ((number, 32), (index, 32), (total, 64))]
    assembler = MessageAssembler()
    try:
        message = assembler.add(struct.pack("<IIQ", *fields) + body)
    except WireError:
        return
    assert message is None or bytes(message) == body
