"""What a fuzzer throws bytes at. Each target takes any bytes, and raises only if Motet did what it must never do."""

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
from tests.networks import Ends, door, hello

VALUE = Weighted(Params.from_tensors({"w": torch.ones(6), "b": torch.ones(2)}), 2.0)
KNOWN = [
    Reply(7, "a", VALUE),
    Reply(7, "b", VALUE),
    Reply(6, "a", VALUE),
    Reply(7, "a", error="no"),
    Request(7, "a", 0, "fedavg.train", VALUE),
    hello("a", token="right"),
    hello("b"),
    hello("a" * 200),
    ClientReady("print"),
    ClientReady("another"),
    Rejection("go away"),
    RunFinished("over"),
    JoinAccepted("0123abcd", "s", "d", {"rounds": 3}, {"toy": {"words": "a b"}}),
    {"deep": [[(1, 2.5, None, True, float("inf"), b"raw")]], 3: torch.zeros(2, 3, dtype=torch.bool)},
]
LEAD = struct.Struct("<4sHHI")


def decoder(data: bytes) -> None:
    """Bytes are a value or a WireError. What was read can be written, and is then read as the same bytes.

    With a first byte of 0 the rest is a whole message; else it is a head that is put where a head belongs, followed by zeros,
    so that a fuzzer need not find the lengths by itself.
    """
    if not data:
        return
    body = data[1:]
    message = body if data[0] == 0 else LEAD.pack(MAGIC, WIRE_VERSION, 0, len(body)) + body + bytes(8 * (data[0] - 1))
    try:
        value = deserialize(message)
    except WireError:
        return
    again = serialize(value)
    if serialize(deserialize(again)) != again:
        raise AssertionError("what was read is written as something else")


def assembly(data: bytes) -> None:
    """Pieces of any kind make messages no longer than allowed, or WireErrors. A piece is a byte of length and its bytes."""
    made = MessageAssembler(limit=4096)
    for piece in pieces(data):
        try:
            whole = made.add(piece)
        except WireError:
            continue
        if whole is not None and len(whole) > 4096:
            raise AssertionError("a message is longer than is allowed")


def doorstep(data: bytes) -> None:
    """Whatever a stranger says, and then perhaps a member: only the answer that is due goes further.

    A piece is said as it is, or stands for a known message if it is a single byte.
    """
    links = Connections(
        door("a", "b", tokens={"a": hash_token("right"), "b": hash_token("known to b alone")}), absence=1e9
    )
    sender, honest = Ends(links, "stranger"), Ends(links, "honest")
    honest.send(OutgoingMessage.of(hello("b", token="known to b alone")))
    honest.send(OutgoingMessage.of(ClientReady("print")))
    for number, client in ((7, "a"), (8, "b")):
        links.send(Request(number, client, 0, "p.m", None))
    for piece in pieces(data):
        if sender.gone:
            break
        links.heard(sender, serialize(KNOWN[piece[0] % len(KNOWN)]) if len(piece) == 1 else piece)
    honest.send(OutgoingMessage.of(Reply(8, "b", VALUE)))
    due = {(reply.id, reply.client) for reply in links.inbox}
    if not due <= {(7, "a"), (8, "b")} or len(links.inbox) > len(due) or (8, "b") not in due:
        raise AssertionError(f"the mailbox has {sorted(due)}")
    if links.refused["b"] or links.refused["honest"]:
        raise AssertionError("somebody else was blamed")


def pieces(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = data[at] or 256
        found.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    return [piece for piece in found if piece]


def seeds(target: str) -> list[bytes]:
    """Where a fuzzer begins: messages as they really are."""
    match target:
        case "decoder":
            heads = [serialize(value) for value in KNOWN]
            return [b"\0" + head for head in heads] + [b"\5" + head[LEAD.size :] for head in heads if not head[6]]
        case "assembly":
            chunks = [*OutgoingMessage((memoryview(bytes(range(256))),)).chunks(3, 100)]
            return [b"".join(bytes([len(c)]) + c for c in order) for order in (chunks, chunks[::-1], chunks * 2)]
        case _:
            return [bytes([1, 5, 1, 8, 1, k]) for k in range(len(KNOWN))] + [bytes([1, k]) for k in range(len(KNOWN))]


TARGETS: dict[str, Callable[[bytes], None]] = {"decoder": decoder, "assembly": assembly, "doorstep": doorstep}
