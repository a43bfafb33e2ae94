"""Masks: keystreams of 32-bit words. They are added to a vector in place and in blocks, so they need little memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motet.secure.crypto import CIPHER_SLACK, keystream
from motet.secure.prime_field import FIELD, Elements

BLOCK_BYTES = 2**18  # fits into the cache
_ZEROS = memoryview(bytes(BLOCK_BYTES))


def add_mask(vector: np.ndarray, key: bytes) -> None:
    """vector ← vector + PRG(key) mod 2³²."""
    for block, mask in _blocks(vector, key):
        np.add(block, mask, out=block)


def subtract_mask(vector: np.ndarray, key: bytes) -> None:
    """vector ← vector − PRG(key) mod 2³²."""
    for block, mask in _blocks(vector, key):
        np.subtract(block, mask, out=block)


def _blocks(vector: np.ndarray, key: bytes) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the blocks of a vector with their masks."""
    stream, buffer = keystream(key), bytearray(min(BLOCK_BYTES, vector.nbytes) + CIPHER_SLACK)
    words = np.frombuffer(buffer, np.uint32, (len(buffer) - CIPHER_SLACK) // 4)
    for start in range(0, vector.size, max(1, words.size)):
        block = vector[start : start + words.size]
        stream.update_into(_ZEROS[: block.nbytes], buffer)
        yield block, words[: block.size]


class FieldMask:
    """The mask of a key in the prime field, from a position on. It can be read in pieces of any size."""

    def __init__(self, key: bytes, position: int = 0) -> None:
        self.key, self.position, self.stream = key, position, keystream(key, position // 4)
        self.stream.update(bytes(4 * (position % 4)))
        self.bit_mask = np.uint32(2 ** FIELD.prime.bit_length() - 1)
        self.buffer = bytearray(BLOCK_BYTES + CIPHER_SLACK)

    def fill(self, elements: Elements) -> None:
        """Overwrite `elements` with the next elements of the mask."""
        words = np.frombuffer(self.buffer, np.uint32, BLOCK_BYTES // 4)
        for start in range(0, elements.size, words.size):
            block = elements[start : start + words.size]
            self.stream.update_into(_ZEROS[: block.nbytes], self.buffer)
            np.bitwise_and(words[: block.size], self.bit_mask, out=block)
            if block.max() >= FIELD.prime:  # with probability 2⁻³¹ per element
                for k in np.flatnonzero(block >= FIELD.prime):
                    block[k] = self._draw_again(self.position + int(k))
            self.position += block.size

    def _draw_again(self, position: int) -> int:
        """Replace a number that is not a field element, from a part of the keystream that only this position uses."""
        stream = keystream(self.key, (1 + position) << 64)
        return int(FIELD.random(lambda size: stream.update(bytes(size)), 1)[0])


def add_field_mask(vector: Elements, key: bytes) -> None:
    """vector ← vector + mask of the key, in the field."""
    mask, buffer = FieldMask(key), np.empty(min(BLOCK_BYTES // 4, vector.size), np.uint32)
    for start in range(0, vector.size, BLOCK_BYTES // 4):
        block = vector[start : start + BLOCK_BYTES // 4]
        mask.fill(buffer[: block.size])
        FIELD.add(block, buffer[: block.size])
