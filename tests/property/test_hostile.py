"""Whatever comes over a network: no crash, nothing reaches the mailbox but an answer that is due, and senders are counted."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import Ends, door, hello

from motet.core.errors import WireError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, RunFinished, hash_token
from motet.transport.connections import MAX_INVALID_MESSAGES, Connections
from motet.transport.framing import UNADMITTED_LIMIT, MessageAssembler, OutgoingMessage
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize
from motet.wire.format import MAGIC, WIRE_VERSION

TOKENS = {"a": "", "b": "known to b alone"}
VALUE = Weighted(Params.from_tensors({"w": torch.ones(40)}), 2.0)
GOOD = serialize(Reply(7, "a", VALUE))
MESSAGES = [
    Reply(7, "a", VALUE),
    Reply(7, "b", VALUE),  # somebody else's answer
    Reply(6, "a", VALUE),  # an old one
    Reply(7, "a", error="no"),
    Request(7, "a", 0, "fedavg.train", VALUE),
    hello("a"),
    hello("b"),
    hello(),
    hello("a", "b", "c", "d"),
    hello("a" * 200),
    hello("../../etc/passwd"),
    ClientReady("print"),
    ClientReady("another"),
    Rejection("go away"),
    RunFinished("over"),
    JoinAccepted("0123abcd", "s", "d", {}, {}),
    VALUE,
    None,
    {"deep": [[[1]]]},
]


@st.composite
def rubbish(draw: st.DrawFn) -> bytes:
    """Random bytes; a message; a message with bytes changed, cut off, or joined to another."""
    data = bytearray(serialize(draw(st.sampled_from(MESSAGES))))
    match draw(st.sampled_from(["random", "whole", "changed", "cut", "joined"])):
        case "random":
            return draw(st.binary(max_size=300))
        case "changed":
            for _ in range(draw(st.integers(1, 5))):
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        case "cut":
            return bytes(data[: draw(st.integers(0, len(data) - 1))])
        case "joined":
            return bytes(data) + serialize(draw(st.sampled_from(MESSAGES)))
    return bytes(data)


def member(links: Connections, *clients: str) -> Ends:
    ends = Ends(links, "peer of " + "".join(clients))
    ends.send(OutgoingMessage.of(hello(*clients, token=TOKENS[clients[0]])))
    ends.send(OutgoingMessage.of(ClientReady("print")))
    return ends


@given(st.lists(rubbish(), max_size=2 * MAX_INVALID_MESSAGES), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_server_takes_in_nothing_but_an_answer_that_is_due(letters: list[bytes], known: bool) -> None:
    tokens = {client: hash_token(token) for client, token in TOKENS.items()}
    links = Connections(door("a", "b", tokens=tokens), absence=1e9)
    honest = member(links, "b")
    sender = member(links, "a") if known else Ends(links, "stranger")
    links.send(Request(7, "a", 0, "p.m", None))
    links.send(Request(8, "b", 0, "p.m", None))
    for letter in letters:
        if not sender.gone:
            links.heard(sender, letter)
    for reply in links.inbox:
        assert (reply.id, reply.client) == (7, "a")
    assert len(links.inbox) <= 1
    assert set(links.refused) <= {"a", "stranger"}
    honest.send(OutgoingMessage.of(Reply(8, "b", VALUE)))  # the others are still heard
    assert links.inbox[-1].client == "b"
    assert links.refused["b"] == 0


@given(st.lists(rubbish(), max_size=MAX_INVALID_MESSAGES))
@settings(max_examples=100, deadline=None)
def test_whoever_was_not_let_in_is_sent_away_at_the_first_wrong_word(letters: list[bytes]) -> None:
    links = Connections(door("a"))
    stranger = Ends(links, "stranger")
    for letter in letters:
        if stranger.gone:
            break
        links.heard(stranger, letter)
        assert stranger.gone or stranger in links.names
    assert links.refused["stranger"] <= 1


@given(st.lists(st.binary(max_size=60) | st.integers(0, 5), max_size=30), st.integers(1, 50))
@settings(max_examples=300, deadline=None)
def test_chunks_make_the_message_or_none(parts: list[bytes | int], size: int) -> None:
    """True chunks in order, with others' bytes and repetitions between them."""
    true = [*OutgoingMessage((memoryview(GOOD),)).chunks(3, size)]
    assembly = MessageAssembler()
    made: list[bytes] = []

    def feed(chunk: bytes) -> None:
        try:
            whole = assembly.add(chunk)
        except WireError:
            return
        if whole is not None:
            made.append(bytes(whole))

    for part in parts:
        feed(part if isinstance(part, bytes) else true[part % len(true)])
    made.clear()
    for chunk in true:
        feed(chunk)
    assert GOOD in made or made == []
    fresh = MessageAssembler()
    found = [whole for chunk in true for _ in range(2) if (whole := fresh.add(chunk)) is not None]
    assert [bytes(whole) for whole in found] == [GOOD]  # each chunk came twice


def test_an_announcement_takes_no_memory() -> None:
    for total in (UNADMITTED_LIMIT + 1, 2**40, 2**63):
        assembly = MessageAssembler()
        try:
            assembly.add(struct.pack("<IIQ", 0, 0, total) + b"x")
            raise AssertionError("it was believed")
        except WireError as error:
            assert "at most" in str(error)
    assert MessageAssembler(2**36).add(struct.pack("<IIQ", 0, 0, 2**34) + b"x") is None  # allowed, and not yet there


def refused(value: Any) -> bool:
    try:
        deserialize(value)
    except WireError:
        return True
    return False


@given(st.integers(0, 2**62), st.sampled_from(["float32", "int64", "bool"]))
@settings(max_examples=100, deadline=None)
def test_a_tensor_that_is_announced_and_not_sent_is_refused(size: int, dtype: str) -> None:
    head = b'{"!":"tensor","dtype":"%s","shape":[%d,1]}' % (dtype.encode(), size)
    message = struct.pack("<4sHHI", MAGIC, WIRE_VERSION, 0, len(head)) + head
    assert refused(message) == (size > 0)


def compressed(head: bytes) -> bytes:
    small = zlib.compress(head, 9)
    return struct.pack("<4sHHI", MAGIC, WIRE_VERSION, 1, len(small)) + small


def test_a_strangers_small_message_does_not_unfold_to_a_large_one() -> None:
    """A kilobyte can be a megabyte of JSON, which takes far longer to read than to send."""
    bomb = compressed(b"[" + b"0," * 2_000_000 + b"0]")
    assert len(bomb) < UNADMITTED_LIMIT
    links = Connections(door("a"))
    stranger = Ends(links, "stranger")
    links.heard(stranger, bomb)
    assert stranger.gone
    assert "is larger than" in deserialize(stranger.inbox.get(timeout=5)).why  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["9" * 4000, ",".join(["9" * 4000] * 2000), ",".join("1" * 65), "true", "1.0", "-1"])
def test_a_shape_is_a_few_numbers_of_a_size_that_can_be(shape: str) -> None:
    """The product of thousands of huge numbers would take hours."""
    head = b'{"!":"tensor","dtype":"float32","shape":[%s]}' % shape.encode()
    with pytest.raises(WireError, match=r"of shape \["):
        deserialize(compressed(head))
