"""Vectorized arithmetic in a prime field.

An element is a uint32 below the prime. Matrix products use float64 BLAS: one factor is split into limbs (two of 16 bits
for up to 32 terms, three of 11 bits for up to 682, four of 8 bits for up to 2048). Every partial sum then stays below
2⁵³ and is exact, in whatever order it is computed.
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
# Columns of a product at a time. They fit into the cache. Rows a power of two apart would compete for the same cache
# lines.
BLOCK_COLUMNS = 4000

Elements = np.ndarray  # of uint32


@dataclass(frozen=True)
class PrimeField:
    """Integers modulo a prime of at most 31 bits."""

    prime: int

    def random(self, random_bytes: Callable[[int], bytes], count: int) -> Elements:
        """Draw uniform elements: as many bits as the prime has, drawn again if they are not below the prime."""
        bit_mask = np.uint32(2 ** self.prime.bit_length() - 1)
        elements = np.frombuffer(random_bytes(4 * count), np.uint32) & bit_mask
        while (invalid := np.flatnonzero(elements >= self.prime)).size:
            elements[invalid] = np.frombuffer(random_bytes(4 * invalid.size), np.uint32) & bit_mask
        return elements

    def product(self, left: Elements, right: Elements | Sequence[Elements]) -> Elements:
        """Return left · right, for a matrix `left` [rows, terms], and `right` as one row per term."""
        result = np.empty((len(left), len(right[0])), np.uint32)
        multiply = BlockMultiplier(self, left, result.shape[1])
        with single_thread():
            for start in range(0, result.shape[1], BLOCK_COLUMNS):
                columns = slice(start, start + BLOCK_COLUMNS)
                multiply(np.stack([row[columns] for row in right]), [row[columns] for row in result])
        return result

    def add(self, total: Elements, other: Elements) -> None:
        """total ← total + other, in place."""
        prime, buffer = np.uint32(self.prime), np.empty(min(BLOCK, total.size), np.uint32)
        for start in range(0, total.size, BLOCK):
            block = total[start : start + BLOCK]
            block += other[start : start + BLOCK]  # cannot wrap: both are below a prime of 31 bits
            reduced = np.subtract(block, prime, out=buffer[: block.size])  # a negative result wraps to a large number
            np.minimum(block, reduced, out=block)

    def subtract(self, total: Elements, other: Elements) -> None:
        """total ← total − other, in place."""
        prime, buffer = np.uint32(self.prime), np.empty(min(BLOCK, total.size), np.uint32)
        for start in range(0, total.size, BLOCK):
            block = total[start : start + BLOCK]
            block -= other[start : start + BLOCK]  # a negative result wraps to a large number
            restored = np.add(block, prime, out=buffer[: block.size])  # adding the prime wraps it back
            np.minimum(block, restored, out=block)

    def powers(self, points: Sequence[int], count: int) -> Elements:
        """Return a matrix with the row 1, x, x², … for each point x."""
        rows = [[pow(x, k, self.prime) for k in range(count)] for x in points]
        return np.array(rows, np.uint32).reshape(len(points), count)

    def interpolation(self, known_points: Sequence[int], target_points: Sequence[int]) -> Elements:
        """Return the matrix from a polynomial's values at the known points to those at the target points (Lagrange)."""
        inverses = [
            pow(self._product_of(x - other for other in known_points if other != x), -1, self.prime)
            for x in known_points
        ]
        rows = []
        for target in target_points:
            differences = [target - x for x in known_points]
            before = self._running_products(differences)
            after = self._running_products(differences[::-1])[::-1]
            rows.append([before[i] * after[i + 1] * inverses[i] % self.prime for i in range(len(known_points))])
        return np.array(rows, np.uint32).reshape(len(target_points), len(known_points))

    def _product_of(self, factors: Iterable[int]) -> int:
        product = 1
        for factor in factors:
            product = product * factor % self.prime
        return product

    def _running_products(self, factors: Sequence[int]) -> list[int]:
        """Return 1, f₀, f₀f₁, …: one more than there are factors."""
        products = [1]
        for factor in factors:
            products.append(products[-1] * factor % self.prime)
        return products


class BlockMultiplier:
    """Multiplies a matrix with blocks of columns, in buffers that stay in the cache.

    The right factor is split into limbs, and the matrix has a column for each: Σ a·x = Σ a·x₀ + (a·2^bits mod p)·x₁ + …. This
    is one product of floats, in which every sum is an integer below 2⁵³.
    """

    def __init__(self, field: PrimeField, left: Elements, columns: int) -> None:
        (rows, self.terms), columns = left.shape, min(columns, BLOCK_COLUMNS)
        if self.terms > MAX_TERMS:
            raise ValueError(f"a product over {self.terms} terms would not be exact; at most {MAX_TERMS} are")
        self.prime, word = field.prime, field.prime.bit_length()
        self.limbs = next(n for n in range(1, word + 1) if n * self.terms << (word + -(-word // n)) <= EXACT_LIMIT)
        self.bits = -(-word // self.limbs)
        shifted = [
            left.astype(np.uint64) * pow(2, self.bits * limb, self.prime) % self.prime for limb in range(self.limbs)
        ]
        self.left = torch.from_numpy(np.concatenate(shifted, 1).astype(np.float64))
        self.limb = np.empty((self.terms, columns), np.uint32)
        self.right = np.empty((self.terms * self.limbs, columns))
        self.sums, self.multiples = np.empty((2, rows, columns))
        self.remainders = np.empty((rows, columns), np.int32)
        self.corrected = np.empty((rows, columns), np.uint32)

    def __call__(self, right: Elements, result: Sequence[Elements]) -> None:
        """result ← matrix · right, for at most BLOCK_COLUMNS columns. Call it inside `single_thread`."""
        columns = right.shape[1]
        buffers = (self.limb, self.right, self.sums, self.multiples, self.remainders, self.corrected)
        limb, limbs, sums, multiples, remainders, corrected = (buffer[:, :columns] for buffer in buffers)
        for k in range(self.limbs):
            np.right_shift(right, np.uint32(self.bits * k), out=limb)
            np.bitwise_and(limb, np.uint32(2**self.bits - 1), out=limb)
            limbs[k * self.terms : (k + 1) * self.terms] = limb
        torch.mm(self.left, torch.from_numpy(limbs), out=torch.from_numpy(sums))
        np.rint(np.multiply(sums, 1 / self.prime, out=multiples), out=multiples)
        # Exact, because multiples·p is below 2⁵³ too. The remainders are at most p/2 from zero.
        sums -= np.multiply(multiples, float(self.prime), out=multiples)
        remainders[...] = sums
        unsigned = remainders.view(np.uint32)  # a negative remainder is a large number, and adding p makes it correct
        np.add(unsigned, np.uint32(self.prime), out=corrected)
        for row, plain, plus_prime in zip(result, unsigned, corrected, strict=True):
            np.minimum(plain, plus_prime, out=row)


FIELD = PrimeField(2**31 - 1)
