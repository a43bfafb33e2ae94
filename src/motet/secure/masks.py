"""Masks: a keystream read as 32-bit words and added to a vector in place, block by block, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motet.secure.field import FIELD, Elements
from motet.secure.keys import stream_of

BLOCK = 2**18  # bytes: small enough for the cache
_ZEROS = memoryview(bytes(BLOCK))


def add_mask(vector: np.ndarray, key: bytes) -> None:
    """vector ← vector + PRG(key) mod 2³²."""
    for piece, words in _blocks(vector, key):
        np.add(piece, words, out=piece)


def subtract_mask(vector: np.ndarray, key: bytes) -> None:
    """vector ← vector − PRG(key) mod 2³²."""
    for piece, words in _blocks(vector, key):
        np.subtract(piece, words, out=piece)


def _blocks(vector: np.ndarray, key: bytes) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    stream, room = stream_of(key), bytearray(min(BLOCK, vector.nbytes) + 15)  # 15: update_into asks for them
    words = np.frombuffer(room, np.uint32, (len(room) - 15) // 4)
    for at in range(0, vector.size, max(1, words.size)):
        piece = vector[at : at + words.size]
        stream.update_into(_ZEROS[: piece.nbytes], room)
        yield piece, words[: piece.size]


def field_mask(key: bytes, count: int) -> Elements:
    """`count` uniform elements of the field, the same for the same key."""
    stream = stream_of(key)
    return FIELD.random(lambda size: stream.update(bytes(size)), count)
