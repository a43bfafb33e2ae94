"""What a request asks of a client's data: the method that reads it, and digests of its payload and models."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from motet.core.params import Params
from motet.experiment.deploy.nested_values import find_values
from motet.privacy.dp_sum import ClipRequest

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


def digest_models(value: Any) -> list[str]:
    """Return hashes of all sets of parameters in a payload."""
    return sorted({_digest_params(params) for params in find_values(value, Params)})


def _digest_params(params: Params) -> str:
    digest = hashlib.sha256(repr((params.layout.names, params.layout.shapes)).encode())
    digest.update(params.flat.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()
