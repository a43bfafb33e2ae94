"""Fuzz targets. Each takes any bytes, and raises an error only if Motet did something it must never do."""

from __future__ import annotations

import struct
from collections.abc import Callable

import torch

from motet.core.errors import WireError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, RunFinished, hash_token
from motet.transport.connections import Connections
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize
from motet.wire.format import MAGIC, WIRE_VERSION
from tests.networks import MemoryLink, make_admission, make_join_request

VALUE = Weighted(Params.from_tensors({"w": torch.ones(6), "b": torch.ones(2)}), 2.0)
MESSAGES = [
    Reply(7, "a", VALUE),
    Reply(7, "b", VALUE),
    Reply(6, "a", VALUE),
    Reply(7, "a", error="no"),
    Request(7, "a", 0, "fedavg.train", VALUE),
    make_join_request("a", token="token of a"),
    make_join_request("b"),
    make_join_request("a" * 200),
    ClientReady("fingerprint"),
    ClientReady("another"),
    Rejection("go away"),
    RunFinished("over"),
    JoinAccepted("0123abcd", "s", "d", {"rounds": 3}, {"toy": {"words": "a b"}}),
    {"deep": [[(1, 2.5, None, True, float("inf"), b"raw")]], 3: torch.zeros(2, 3, dtype=torch.bool)},
]
JOIN, READY = 5, 8  # positions of valid messages of client a in MESSAGES
PREFIX = struct.Struct("<4sHHI")


def fuzz_decoder(data: bytes) -> None:
    """Bytes give a value or a WireError. A value can be serialized, and then gives the same bytes again.

    If the first byte is 0, the rest is a complete message. Else the rest is a header, which gets a valid prefix and is
    followed by zeros, so that the fuzzer need not find the lengths.
    """
    if not data:
        return
    body = data[1:]
    message = body if data[0] == 0 else PREFIX.pack(MAGIC, WIRE_VERSION, 0, len(body)) + body + bytes(8 * (data[0] - 1))
    try:
        value = deserialize(message)
    except WireError:
        return
    serialized = serialize(value)
    if serialize(deserialize(serialized)) != serialized:
        raise AssertionError("a value changes when it is serialized again")


def fuzz_assembler(data: bytes) -> None:
    """Chunks give messages within the limit, or WireErrors."""
    assembler = MessageAssembler(limit=4096)
    for chunk in split_pieces(data):
        try:
            message = assembler.add(chunk)
        except WireError:
            continue
        if message is not None and len(message) > 4096:
            raise AssertionError("a message is longer than the limit")


def fuzz_connections(data: bytes) -> None:
    """Whatever a stranger sends, also after it has joined, only replies to open requests reach the inbox.

    A piece of one byte stands for a message of the list above; a longer piece is sent as it is.
    """
    token_hashes = {"a": hash_token("token of a"), "b": hash_token("token of b")}
    connections = Connections(make_admission("a", "b", token_hashes=token_hashes), reconnect_timeout=1e9)
    sender, honest = MemoryLink(connections, "stranger"), MemoryLink(connections, "honest")
    honest.send(OutgoingMessage.from_value(make_join_request("b", token="token of b")))
    honest.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    for request_id, client in ((7, "a"), (8, "b")):
        connections.send(Request(request_id, client, 0, "p.m", None))
    for piece in split_pieces(data):
        if sender.is_cut:
            break
        message = serialize(MESSAGES[piece[0] % len(MESSAGES)]) if len(piece) == 1 else piece
        connections.on_message(sender.server_end, message)
    honest.send(OutgoingMessage.from_value(Reply(8, "b", VALUE)))
    received = {(reply.id, reply.client) for reply in connections.inbox}
    is_valid = received <= {(7, "a"), (8, "b")} and len(connections.inbox) == len(received)
    if not is_valid or (8, "b") not in received:
        raise AssertionError(f"the inbox contains {sorted(received)}")
    if connections.rejected["b"] or connections.rejected["honest"]:
        raise AssertionError("an invalid message was counted for another client")


def split_pieces(data: bytes) -> list[bytes]:
    """Split bytes into pieces, each preceded by its length as one byte."""
    pieces, start = [], 0
    while start < len(data):
        size = data[start] or 256
        pieces.append(data[start + 1 : start + 1 + size])
        start += 1 + size
    return [piece for piece in pieces if piece]


def make_seeds(target: str) -> list[bytes]:
    """Return valid inputs from which the fuzzer starts."""
    match target:
        case "decoder":
            messages = [serialize(value) for value in MESSAGES]
            uncompressed = [message for message in messages if not message[6]]
            overflows = [b'\5{"!":"tensor","dtype":"int64","shape":[0,%d,%d]}' % (n, n) for n in (2**31, 2**47, 2**63)]
            headers = [b"\5" + message[PREFIX.size :] for message in uncompressed]
            return [b"\0" + message for message in messages] + headers + overflows
        case "assembler":
            chunks = [*OutgoingMessage((memoryview(bytes(range(256))),)).chunks(3, 100)]
            orders = (chunks, chunks[::-1], chunks * 2)
            return [b"".join(bytes([len(chunk)]) + chunk for chunk in order) for order in orders]
        case _:
            numbers = range(len(MESSAGES))
            return [bytes([1, JOIN, 1, READY, 1, k]) for k in numbers] + [bytes([1, k]) for k in numbers]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decoder": fuzz_decoder,
    "assembler": fuzz_assembler,
    "connections": fuzz_connections,
}
