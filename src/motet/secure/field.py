"""Arithmetic in a prime field, on whole matrices at a time.

An element is a uint32 below the prime. Products of matrices go through float64 BLAS: one factor is cut into limbs (two of 16
bits for up to 64 terms, three of 11 for up to 2048), so that every partial sum stays below 2⁵³ and is exact, whatever order it
is added in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

WORD, EXACT = 31, 53  # bits of an element, and of the integers that a float64 holds
MOST_TERMS = 2**11
BLOCK = 2**16  # elements at a time, so that temporaries stay small
COLUMNS = 2**13  # of a product at a time: ten rows of them fit the cache

Elements = np.ndarray  # of uint32


@dataclass(frozen=True)
class Field:
    """Integers modulo a prime of at most 31 bits."""

    prime: int

    def random(self, draw: Callable[[int], bytes], count: int) -> Elements:
        """Uniform elements from uniform bytes: as many bits as the prime has; what is no element is drawn again."""
        bits = np.uint32(2 ** self.prime.bit_length() - 1)
        found = np.frombuffer(draw(4 * count), np.uint32) & bits
        while (again := np.flatnonzero(found >= self.prime)).size:
            found[again] = np.frombuffer(draw(4 * again.size), np.uint32) & bits
        return found

    def product(self, left: Elements, right: Elements) -> Elements:
        """left · right, for matrices [rows, terms] and [terms, columns]."""
        if left.shape[1] > MOST_TERMS:
            raise ValueError(f"a product over {left.shape[1]} terms would not be exact; at most {MOST_TERMS} are")
        limbs = -(-WORD // (EXACT - WORD - (left.shape[1] - 1).bit_length()))
        bits = -(-WORD // limbs)
        exact, low = left.astype(np.float64), np.uint32(2**bits - 1)
        found = np.empty((left.shape[0], right.shape[1]), np.uint32)
        for at in range(0, right.shape[1], COLUMNS):
            piece = right[:, at : at + COLUMNS]
            summed = np.zeros((left.shape[0], piece.shape[1]), np.uint64)
            for limb in reversed(range(limbs)):  # the highest first: summed ← summed · 2^bits + partial
                part = (piece >> np.uint32(bits * limb)) & low
                partial = (exact @ part.astype(np.float64)).astype(np.uint64)
                partial += summed << np.uint64(bits)
                summed = partial % np.uint64(self.prime)
            found[:, at : at + COLUMNS] = summed
        return found

    def add(self, total: Elements, other: Elements) -> None:
        """total ← total + other, in place and in blocks."""
        for at in range(0, total.size, BLOCK):
            self._reduced(total[at : at + BLOCK], other[at : at + BLOCK])

    def subtract(self, total: Elements, other: Elements) -> None:
        """total ← total − other, in place and in blocks."""
        for at in range(0, total.size, BLOCK):
            self._reduced(total[at : at + BLOCK], np.uint32(self.prime) - other[at : at + BLOCK])

    def _reduced(self, piece: Elements, other: Elements) -> None:
        piece += other  # both at most the prime, which has 31 bits: this cannot wrap
        np.subtract(piece, np.uint32(self.prime), out=piece, where=piece >= self.prime)

    def powers(self, points: Sequence[int], count: int) -> Elements:
        """One row a point: 1, x, x², …"""
        rows = [[pow(x, k, self.prime) for k in range(count)] for x in points]
        return np.array(rows, np.uint32).reshape(len(points), count)

    def interpolation(self, known: Sequence[int], wanted: Sequence[int]) -> Elements:
        """The matrix that takes a polynomial's values at the known points to its values at the wanted ones (Lagrange)."""
        inverse = [pow(self._product(x - o for o in known if o != x), -1, self.prime) for x in known]
        rows = []
        for y in wanted:
            above = [y - x for x in known]
            ahead, behind = self._running(above), self._running(above[::-1])[::-1]
            rows.append([ahead[i] * behind[i + 1] * inverse[i] % self.prime for i in range(len(known))])
        return np.array(rows, np.uint32).reshape(len(wanted), len(known))

    def _product(self, factors: Iterable[int]) -> int:
        found = 1
        for f in factors:
            found = found * f % self.prime
        return found

    def _running(self, factors: Sequence[int]) -> list[int]:
        """1, f₀, f₀f₁, …: one more than there are factors."""
        found = [1]
        for f in factors:
            found.append(found[-1] * f % self.prime)
        return found


FIELD = Field(2**31 - 1)
