"""Arithmetic in a prime field, on whole matrices at a time.

An element is a uint32 below the prime. Products of matrices go through float64 BLAS: one factor is cut into limbs (two of 16
bits for up to 32 terms, three of 11 for up to 682, four of 8 for up to 2048), so that every partial sum stays below 2⁵³ and is
exact, whatever order it is added in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from motet.core.threads import single_thread

EXACT_LIMIT = 2**53  # integers up to here are exact in a float64
MAX_TERMS = 2**11
BLOCK = 2**16  # elements at a time, so that temporaries stay small
BLOCK_COLUMNS = (
    4000  # of a product at a time: they fit the cache; rows a power of two apart would contend for the same lines of it
)

Elements = np.ndarray  # of uint32


@dataclass(frozen=True)
class PrimeField:
    """Integers modulo a prime of at most 31 bits."""

    prime: int

    def random(self, draw: Callable[[int], bytes], count: int) -> Elements:
        """Uniform elements from uniform bytes: as many bits as the prime has; what is no element is drawn again."""
        bits = np.uint32(2 ** self.prime.bit_length() - 1)
        found = np.frombuffer(draw(4 * count), np.uint32) & bits
        while (again := np.flatnonzero(found >= self.prime)).size:
            found[again] = np.frombuffer(draw(4 * again.size), np.uint32) & bits
        return found

    def product(self, left: Elements, right: Elements | Sequence[Elements]) -> Elements:
        """left · right, for a matrix [rows, terms] and as many rows of columns as there are terms."""
        found = np.empty((len(left), len(right[0])), np.uint32)
        times = BlockMultiplier(self, left, found.shape[1])
        with single_thread():
            for at in range(0, found.shape[1], BLOCK_COLUMNS):
                times(
                    np.stack([row[at : at + BLOCK_COLUMNS] for row in right]),
                    [row[at : at + BLOCK_COLUMNS] for row in found],
                )
        return found

    def add(self, total: Elements, other: Elements) -> None:
        """total ← total + other, in place and in blocks."""
        prime, room = np.uint32(self.prime), np.empty(min(BLOCK, total.size), np.uint32)
        for at in range(0, total.size, BLOCK):
            piece = total[at : at + BLOCK]
            piece += other[at : at + BLOCK]  # both below the prime, which has 31 bits: this cannot wrap
            less = np.subtract(piece, prime, out=room[: piece.size])  # what is below zero wraps to a large number
            np.minimum(piece, less, out=piece)

    def subtract(self, total: Elements, other: Elements) -> None:
        """total ← total − other, in place and in blocks."""
        prime, room = np.uint32(self.prime), np.empty(min(BLOCK, total.size), np.uint32)
        for at in range(0, total.size, BLOCK):
            piece = total[at : at + BLOCK]
            piece -= other[
                at : at + BLOCK
            ]  # what is below zero wraps to a large number, and by the prime back to a small one
            np.minimum(piece, np.add(piece, prime, out=room[: piece.size]), out=piece)

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


class BlockMultiplier:
    """Multiplies by one matrix, block after block of columns, in a memory of its own that stays in the cache.

    The other factor is cut into limbs and the matrix has a column for each: Σ a·x = Σ a·x₀ + (a·2^bits mod p)·x₁ + …, a single
    product of floats, of which every sum is an integer below 2⁵³.
    """

    def __init__(self, field: PrimeField, left: Elements, columns: int) -> None:
        (rows, self.terms), columns = left.shape, min(columns, BLOCK_COLUMNS)
        if self.terms > MAX_TERMS:
            raise ValueError(f"a product over {self.terms} terms would not be exact; at most {MAX_TERMS} are")
        self.prime, word = field.prime, field.prime.bit_length()
        self.limbs = next(n for n in range(1, word + 1) if n * self.terms << (word + -(-word // n)) <= EXACT_LIMIT)
        self.bits = -(-word // self.limbs)
        wide = [
            left.astype(np.uint64) * pow(2, self.bits * limb, self.prime) % self.prime for limb in range(self.limbs)
        ]
        self.left = torch.from_numpy(np.concatenate(wide, 1).astype(np.float64))
        self.cut = np.empty((self.terms, columns), np.uint32)
        self.right = np.empty((self.terms * self.limbs, columns))
        self.sums, self.whole = np.empty((2, rows, columns))
        self.rest, self.other = np.empty((rows, columns), np.int32), np.empty((rows, columns), np.uint32)

    def __call__(self, right: Elements, found: Sequence[Elements]) -> None:
        """found ← matrix · right, row by row, of at most COLUMNS columns. To be called inside `single_thread`."""
        columns = right.shape[1]
        rooms = (self.cut, self.right, self.sums, self.whole, self.rest, self.other)
        cut, limbs, sums, whole, rest, other = (room[:, :columns] for room in rooms)
        for limb in range(self.limbs):
            np.right_shift(right, np.uint32(self.bits * limb), out=cut)
            limbs[limb * self.terms : (limb + 1) * self.terms] = np.bitwise_and(
                cut, np.uint32(2**self.bits - 1), out=cut
            )
        torch.mm(self.left, torch.from_numpy(limbs), out=torch.from_numpy(sums))
        np.rint(np.multiply(sums, 1 / self.prime, out=whole), out=whole)
        sums -= np.multiply(
            whole, float(self.prime), out=whole
        )  # exact, as whole·p is below 2⁵³ too; at most p/2 from zero
        rest[...] = sums
        least = rest.view(np.uint32)  # what is below zero is a large number here, and plus p the right one
        np.add(least, np.uint32(self.prime), out=other)
        for row, one, two in zip(found, least, other, strict=True):
            np.minimum(one, two, out=row)


FIELD = PrimeField(2**31 - 1)
