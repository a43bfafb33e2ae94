"""How large a message may be, by its kind: what the receiver expects next from this sender."""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.wire.read_limits import ReadLimits

MIB, GIB = 2**20, 2**30
FLOAT_BYTES = 4
MIN_EXPANDED_NUMBERS = 2**24  # a run with a tiny model may still compress large logits
BASE_BYTES = 8 * GIB  # of a reply or a request, whatever the model: logits and embeddings of many texts


REPLY_CONTENTS = ReadLimits(header_bytes=8 * MIB, nodes=2**19)
REQUEST_CONTENTS = ReadLimits(header_bytes=64 * MIB, nodes=2**20)


@dataclass(frozen=True)
class MessageLimits:
    """The limits of one kind of message; by default of a reply, if the model is not known."""

    message_bytes: int = 2**36
    contents: ReadLimits = REPLY_CONTENTS


JOIN_REQUEST = MessageLimits(
    2**18, ReadLimits(header_bytes=2**18, nodes=2**16, numbers=0, messages=frozenset({"JoinRequest"}))
)
CLIENT_READY = MessageLimits(
    2**12, ReadLimits(header_bytes=2**12, nodes=2**8, numbers=0, messages=frozenset({"ClientReady"}))
)
# The vocabulary of a model can be one string of many megabytes.
JOIN_ANSWER = MessageLimits(64 * MIB, ReadLimits(header_bytes=64 * MIB, nodes=2**16, numbers=0))


def reply_limits(model_numbers: int, models_per_message: int = 8, message_bytes: int | None = None) -> MessageLimits:
    """Return the limits of a client's reply. `message_bytes` replaces the limit that follows from the model."""
    contents = replace(REPLY_CONTENTS, numbers=max(MIN_EXPANDED_NUMBERS, model_numbers), copies=models_per_message)
    return MessageLimits(message_bytes or _message_bytes(model_numbers, models_per_message), contents)


def request_limits(model_numbers: int, models_per_message: int = 16) -> MessageLimits:
    """Return the limits of a server's request."""
    contents = replace(REQUEST_CONTENTS, numbers=max(MIN_EXPANDED_NUMBERS, model_numbers), copies=models_per_message)
    return MessageLimits(_message_bytes(model_numbers, models_per_message), contents)


def _message_bytes(model_numbers: int, models_per_message: int) -> int:
    return BASE_BYTES + FLOAT_BYTES * model_numbers * models_per_message
