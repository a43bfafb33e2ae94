"""What a request asks of a client's data: the method that reads it, and digests of its payload and models."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from motet.core.params import Params
from motet.privacy.dp_sum import ClipRequest
from motet.wire import iter_serialized

CLIPPED = "private.clipped"  # the only method that runs the one in its payload; others may ignore what they get


class Question(NamedTuple):
    """A method of the algorithm or of the evaluation, and its payload. `is_noisy` if noise is added to the reply."""

    method: str
    payload: Any
    is_noisy: bool = False


def find_question(address: str, payload: Any) -> Question:
    """Return the question of a call of a method, also if its reply is clipped first."""
    if address == CLIPPED and isinstance(payload, ClipRequest):
        return Question(payload.address, payload.payload, is_noisy=True)
    return Question(address, payload)


def digest_message(value: Any) -> str:
    """Return a hash of a message."""
    digest = hashlib.sha256()
    for piece in iter_serialized(value):
        digest.update(piece)
    return digest.hexdigest()


def digest_models(value: Any) -> list[str]:
    """Return hashes of all sets of parameters in a payload."""
    return sorted({_digest_params(params) for params in _find_params(value)})


def _digest_params(params: Params) -> str:
    digest = hashlib.sha256(repr((params.layout.names, params.layout.shapes)).encode())
    digest.update(params.flat.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def _find_params(value: Any) -> Iterator[Params]:
    if isinstance(value, Params):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _find_params(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_params(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _find_params(getattr(value, field.name))
