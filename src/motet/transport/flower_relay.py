"""Flower's messages: how they carry Motet's, in the ServerApp and in the ClientApp of a SuperNode.

A ClientApp runs in a new process for every message, so this file loads nothing but Flower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motet.core.errors import ConfigError, RunError
from motet.transport.flower_version import require_flower
from motet.transport.flower_visit import SOCKET_KEY, VisitHeader, VisitReply, visit_client

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
except ImportError:
    require_flower()  # says which version is needed
    raise
require_flower()

HEADER_RECORD, MESSAGES_RECORD = "motet", "messages"


def pack_visit(messages: Sequence[bytes], **fields: str | int | bool) -> RecordDict:
    """Return messages as arrays of bytes, which Flower sends in chunks, so that they may have any size."""
    arrays = {f"{i:08d}": Array("uint8", (len(data),), "motet", data) for i, data in enumerate(messages)}
    return RecordDict({HEADER_RECORD: ConfigRecord(dict(fields)), MESSAGES_RECORD: ArrayRecord(arrays)})


def unpack_visit(content: RecordDict) -> tuple[dict[str, Any], list[bytes]]:
    """Return the fields and the messages; nothing if the other side is not Motet."""
    header = content.config_records.get(HEADER_RECORD, {})
    arrays = content.array_records.get(MESSAGES_RECORD, {})
    return dict(header), [arrays[name].data for name in sorted(arrays)]


def relay_message(message: Message, context: Context) -> Message:
    """Deliver the server's messages to the Motet client, and return what it answers, or why it does not."""
    try:
        fields, messages = unpack_visit(message.content)
        header, answers = visit_client(
            str(context.node_config.get(SOCKET_KEY, "")),
            VisitHeader(str(fields.get("link", "")), int(fields.get("number", 0)), len(messages)),
            messages,
        )
        content = pack_visit(answers, lost=header.lost)
    except (ConfigError, RunError) as error:
        content = pack_visit([], error=str(error))
    return Message(content, reply_to=message)


class GridPost:
    """Sends visits with the grid of a ServerApp."""

    def __init__(self, grid: Any) -> None:
        self.grid = grid

    def find_nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(self, node: int, link: str, number: int, messages: Sequence[bytes]) -> str:
        content = pack_visit(messages, link=link, number=number)
        message_id = next(iter(self.grid.push_messages([Message(content, node, MessageType.QUERY)])), None)
        if not message_id:
            raise ConnectionError(f"it did not take a message for SuperNode {node}")
        return str(message_id)

    def receive(self, message_ids: Sequence[str]) -> list[VisitReply]:
        return [self._read(reply) for reply in self.grid.pull_messages(list(message_ids))]

    def _read(self, reply: Message) -> VisitReply:
        message_id = reply.metadata.reply_to_message_id
        if reply.has_error():
            return VisitReply(message_id, f"it did not answer: {reply.error.reason}", is_lost=True)
        fields, messages = unpack_visit(reply.content)
        return VisitReply(message_id, str(fields.get("error", "")), fields.get("lost") is not False, messages)
