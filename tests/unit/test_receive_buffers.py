"""Incoming messages use a limited amount of memory, however many clients reply at once."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from tests.networks import MemoryLink, make_admission, make_join_request

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
VALUE_SIZE = OutgoingMessage.from_value(VALUE).size


def assemble(buffers: ReceiveBuffers, value: object) -> memoryview:
    assembler = MessageAssembler(10**6, buffers)
    chunks = OutgoingMessage.from_value(value).chunks(1, 300)
    messages = [message for chunk in chunks if (message := assembler.add(chunk)) is not None]
    return messages[0]


def test_messages_beyond_the_budget_go_to_files_unchanged() -> None:
    buffers = ReceiveBuffers(budget=2 * VALUE_SIZE)
    messages = [assemble(buffers, VALUE) for _ in range(5)]
    assert buffers.used == 2 * VALUE_SIZE
    assert [bytes(message) for message in messages] == [serialize(VALUE)] * 5
    values = [deserialize(message) for message in messages]
    values[4].value.flat.add_(1)  # must not change the others
    assert all(torch.equal(value.value.flat, VALUE.value.flat) for value in values[:4])


def test_memory_counts_as_used_until_the_last_tensor_on_it_is_gone() -> None:
    buffers = ReceiveBuffers(budget=10**6)
    tensor = deserialize(assemble(buffers, VALUE)).value.flat
    gc.collect()
    assert buffers.used == VALUE_SIZE
    del tensor
    gc.collect()
    assert buffers.used == 0


def test_an_incomplete_message_releases_its_memory_on_reset() -> None:
    buffers = ReceiveBuffers(budget=10**6)
    assembler = MessageAssembler(10**6, buffers)
    first, *_ = OutgoingMessage.from_value(VALUE).chunks(1, 300)
    assert assembler.add(first) is None
    assert buffers.used == VALUE_SIZE
    assembler.reset()
    assert buffers.used == 0


def test_clients_that_reply_at_once_share_the_budget() -> None:
    clients = [f"c{k}" for k in range(8)]
    size = OutgoingMessage.from_value(Reply(1, "c0", VALUE)).size
    connections = Connections(make_admission(*clients), buffers=ReceiveBuffers(budget=3 * size))
    for request_id, client in enumerate(clients, 1):
        link = MemoryLink(connections, client)
        link.send(OutgoingMessage.from_value(make_join_request(client)))
        link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
        connections.send(Request(request_id, client, 0, "p.m", None))
        link.send(OutgoingMessage.from_value(Reply(request_id, client, VALUE)))
    assert len(connections.inbox) == 8
    assert connections.buffers.used == 3 * size
    for client in clients:
        reply = connections.receive(1.0)
        assert reply is not None and reply.client == client
        assert torch.equal(reply.value.value.flat, VALUE.value.flat)
        del reply
    assert connections.buffers.used == 0


@pytest.mark.parametrize("value", [VALUE, None, {"many": [torch.zeros(0), torch.ones(3)]}])
def test_a_value_survives_a_file(value: object, tmp_path: Path) -> None:
    path = tmp_path / "value"
    with path.open("w+b") as file:
        write_value(value, file)
        assert bytes(map_file(file)) == serialize(value)
    assert serialize(load_value(path)) == serialize(value)
