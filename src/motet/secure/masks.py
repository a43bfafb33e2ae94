"""Masks: a keystream read as 32-bit words and added to a vector in place, block by block, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motet.secure.crypto import keystream
from motet.secure.prime_field import FIELD, Elements

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
    stream, room = keystream(key), bytearray(min(BLOCK, vector.nbytes) + 15)  # 15: update_into asks for them
    words = np.frombuffer(room, np.uint32, (len(room) - 15) // 4)
    for at in range(0, vector.size, max(1, words.size)):
        piece = vector[at : at + words.size]
        stream.update_into(_ZEROS[: piece.nbytes], room)
        yield piece, words[: piece.size]


class FieldMask:
    """Uniform elements of the field, from some place of a key's mask on; the same in whatever pieces they are asked for."""

    def __init__(self, key: bytes, place: int = 0) -> None:
        self.key, self.place, self.stream = key, place, keystream(key, place // 4)
        self.stream.update(bytes(4 * (place % 4)))
        self.bits = np.uint32(2 ** FIELD.prime.bit_length() - 1)
        self.room = bytearray(BLOCK + 15)

    def into(self, found: Elements) -> None:
        """The next elements."""
        words = np.frombuffer(self.room, np.uint32, BLOCK // 4)
        for at in range(0, found.size, words.size):
            piece = found[at : at + words.size]
            self.stream.update_into(_ZEROS[: piece.nbytes], self.room)
            np.bitwise_and(words[: piece.size], self.bits, out=piece)
            if piece.max() >= FIELD.prime:  # seldom: one of 2³¹
                for k in np.flatnonzero(piece >= FIELD.prime):
                    piece[k] = self._again(self.place + int(k))
            self.place += piece.size

    def _again(self, place: int) -> int:
        """Another draw for what was no element: from a part of the keystream that belongs to this place alone."""
        stream = keystream(self.key, (1 + place) << 64)
        return int(FIELD.random(lambda size: stream.update(bytes(size)), 1)[0])


def add_field_mask(words: Elements, key: bytes) -> None:
    """words ← words + the mask of a key, in the field."""
    mask, room = FieldMask(key), np.empty(min(BLOCK // 4, words.size), np.uint32)
    for at in range(0, words.size, BLOCK // 4):
        piece = words[at : at + BLOCK // 4]
        mask.into(room[: piece.size])
        FIELD.add(piece, room[: piece.size])
