"""However many clients answer at once, what is held of their messages in memory has a limit."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from tests.networks import Ends, door, hello

from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.transport.admission import ClientReady
from motet.transport.connections import Connections
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.receive_buffers import ReceiveBuffers
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize
from motet.wire.value_files import load_value, map_file, write_value

VALUE = Weighted(Params.from_tensors({"w": torch.arange(500.0)}), 2.0)


def put_together(room: ReceiveBuffers, value: object) -> memoryview:
    assembly, parcel = MessageAssembler(10**6, room), OutgoingMessage.of(value)
    found = [whole for chunk in parcel.chunks(1, 300) if (whole := assembly.add(chunk)) is not None]
    return found[0]


def test_what_does_not_fit_lies_in_a_file_and_is_the_same() -> None:
    size = OutgoingMessage.of(VALUE).size
    room = ReceiveBuffers(budget=2 * size)
    made = [put_together(room, VALUE) for _ in range(5)]
    assert room.used == 2 * size
    assert [bytes(whole) for whole in made] == [serialize(VALUE)] * 5
    values = [deserialize(whole) for whole in made]
    values[4].value.flat.add_(1)  # nobody else's is changed by it
    assert all(torch.equal(value.value.flat, VALUE.value.flat) for value in values[:4])


def test_room_is_taken_for_as_long_as_somebody_holds_the_bytes() -> None:
    room = ReceiveBuffers(budget=10**6)
    tensor = deserialize(put_together(room, VALUE)).value.flat
    gc.collect()
    assert room.used == OutgoingMessage.of(VALUE).size
    del tensor
    gc.collect()
    assert room.used == 0


def test_a_message_that_is_given_up_gives_its_room_back() -> None:
    room = ReceiveBuffers(budget=10**6)
    assembly = MessageAssembler(10**6, room)
    first, *_ = OutgoingMessage.of(VALUE).chunks(1, 300)
    assert assembly.add(first) is None
    assert room.used == OutgoingMessage.of(VALUE).size
    assembly.forget()
    assert room.used == 0


def test_clients_that_all_answer_at_once_share_the_room() -> None:
    names = [f"c{k}" for k in range(8)]
    size = OutgoingMessage.of(Reply(1, "c0", VALUE)).size
    links = Connections(door(*names), room=ReceiveBuffers(budget=3 * size))
    for number, name in enumerate(names, 1):
        ends = Ends(links, name)
        ends.send(OutgoingMessage.of(hello(name)))
        ends.send(OutgoingMessage.of(ClientReady("print")))
        links.send(Request(number, name, 0, "p.m", None))
        ends.send(OutgoingMessage.of(Reply(number, name, VALUE)))
    assert len(links.inbox) == 8
    assert links.room.used == 3 * size
    for name in names:
        reply = links.receive(1.0)
        assert reply is not None and reply.client == name
        assert torch.equal(reply.value.value.flat, VALUE.value.flat)
        del reply
    assert links.room.used == 0


@pytest.mark.parametrize("value", [VALUE, None, {"many": [torch.zeros(0), torch.ones(3)]}])
def test_a_value_comes_out_of_a_file_as_it_went_in(value: object, tmp_path: Path) -> None:
    path = tmp_path / "value"
    with path.open("w+b") as file:
        write_value(value, file)
        assert bytes(map_file(file)) == serialize(value)
    assert serialize(load_value(path)) == serialize(value)
