"""A hash of a value: equal on all machines for equal messages."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

from torch import Tensor

from motet.wire.format import Buffer, buffer_bytes, encode_parts

# In a simulation all clients get the same tensors. By the tensor's ID, with its version: in-place changes count.
_digests: dict[int, tuple[weakref.ref[Tensor], int, bytes]] = {}


def digest_value(value: Any) -> str:
    """Return a hash of a value that can be sent. It covers types, shapes and every number."""
    text, buffers = encode_parts(value)
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for buffer in buffers:
        digest.update(_digest_buffer(buffer))
    return digest.hexdigest()


def _digest_buffer(buffer: Buffer) -> bytes:
    if isinstance(buffer, bytes):
        return hashlib.blake2b(buffer, digest_size=32).digest()
    key = id(buffer)
    if key in _digests:
        reference, version, digest = _digests[key]
        if reference() is buffer and version == buffer._version:
            return digest
    digest = hashlib.blake2b(buffer_bytes(buffer), digest_size=32).digest()
    _digests[key] = (weakref.ref(buffer, lambda _: _digests.pop(key, None)), buffer._version, digest)
    return digest
