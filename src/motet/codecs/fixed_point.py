"""Numbers as integers whose sum cannot wrap: what masks are put over.

For n clients and words modulo m, a word holds at most `base` = the largest power of two with n·base ≤ (m−1)/2, so the sum of
n words stays on its side of zero. A number of single precision is one word, ⌊x·base/range + u⌋ with u uniform in [0, 1): the
rounding is unbiased and off by less than one step, `range/base`. A number of double precision (a count, a weight) is two
words, high·base + low, so that counts add up exactly. The sum of n terms is off by less than n steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from motet.core.errors import ConfigError, PrivacyError, RunError

BLOCK = 2**16
DOUBLE_RANGE = 2.0**24  # the range of what is in double precision
WIDEST = 2**26  # two words of which must be exact in a float64


@dataclass(frozen=True)
class FixedPoint:
    """`range`: the largest size of a number of single precision. `bits` of 32 are used; None: as many as n terms leave."""

    range: float = 4.0
    bits: int | None = None
    outside: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        if not 0 < self.range < float("inf"):
            raise ConfigError(f"secure.range is {self.range}; it is the largest number a client may send, above 0.")
        if self.bits is not None and not 2 <= self.bits <= 31:
            raise ConfigError(f"secure.bits is {self.bits}; a number takes 2 to 31 of the 32 bits of a word.")

    def base(self, clients: int, modulus: int) -> int:
        """The largest value of a word of single precision."""
        room = _room(clients, modulus)
        if self.bits is None:
            return room
        if 2 ** (self.bits - 1) > room:
            raise ConfigError(
                f"secure.bits is {self.bits}, but sums of {clients} such numbers could wrap in words of "
                f"{modulus.bit_length() - 1} bits; at most {room.bit_length()} fit, or leave it out."
            )
        return int(2 ** (self.bits - 1))

    def step(self, clients: int, modulus: int) -> float:
        """How far one client's rounding can be off; a sum over n clients by less than n of these."""
        return self.range / self.base(clients, modulus)

    def encode(
        self, numbers: torch.Tensor, factor: float, clients: int, modulus: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Words of factor·numbers (a factor is at most 1), as uint32: one a number; of double precision two, the high first."""
        self._check(numbers)
        flat = numbers.detach().cpu().numpy()
        if numbers.dtype == torch.float64:
            base = _wide(clients, modulus)
            exact = flat * factor * (base * base / DOUBLE_RANGE)
            whole = np.floor(exact)
            whole += rng.random(flat.size) < exact - whole  # so near 2⁵³ a sum with u would itself be rounded
            high = np.floor(whole / base)
            return _residues(np.concatenate([high, whole - high * base]), modulus)
        words, scale = np.empty(flat.size, np.uint32), factor / self.step(clients, modulus)
        for at in range(0, flat.size, BLOCK):
            piece = flat[at : at + BLOCK].astype(np.float64)
            if self.outside == "clip":
                np.clip(piece, -self.range, self.range, out=piece)
            piece *= scale
            piece += rng.random(piece.size, dtype=np.float32)
            words[at : at + BLOCK] = _residues(np.floor(piece, out=piece), modulus)
        return words

    def decode(self, words: np.ndarray, double: bool, clients: int, modulus: int) -> torch.Tensor:
        """The numbers, in double precision, of which these are the summed words."""
        found = center_residues(words, modulus)
        if double:
            base = _wide(clients, modulus)
            high, low = np.split(found, 2)
            return torch.from_numpy((high * base + low) * (DOUBLE_RANGE / (base * base)))
        found *= self.step(clients, modulus)
        return torch.from_numpy(found)

    def _check(self, numbers: torch.Tensor) -> None:
        """Before anything is masked: afterwards nobody could see that a number did not fit.

        What is said goes to the server, so it does not say how large the number is.
        """
        if not numbers.numel():
            return
        largest = max(abs(float(end)) for end in torch.aminmax(numbers))  # both are NaN if any number is
        if not math.isfinite(largest):
            raise RunError("a reply holds numbers that are not finite, which no sum can hold; lower the learning rate.")
        double = numbers.dtype == torch.float64
        limit = DOUBLE_RANGE if double else self.range
        if (double or self.outside == "refuse") and largest > limit:
            raise PrivacyError(
                f"a reply holds a number outside ±{limit:g}, so that the sum under the masks could wrap; "
                "raise secure.range, or cut such numbers off with secure.outside=clip."
            )


def _room(clients: int, modulus: int) -> int:
    """The largest power of two of which so many clients' sum does not pass half the modulus."""
    return int(2 ** (max(1, (modulus - 1) // 2 // clients).bit_length() - 1))


def _wide(clients: int, modulus: int) -> int:
    return min(_room(clients, modulus), WIDEST)


def _residues(whole: np.ndarray, modulus: int) -> np.ndarray:
    """Of whole numbers of at most 2³⁰ in size, as words never are larger."""
    words = whole.astype(np.int32).view(np.uint32)
    if modulus == 2**32:
        return words
    found: np.ndarray = np.minimum(words, words + np.uint32(modulus))  # what is below zero is a large word, and wraps
    return found


def center_residues(words: np.ndarray, modulus: int) -> np.ndarray:
    """From residues to numbers on both sides of zero."""
    if modulus == 2**32:
        return words.view(np.int32).astype(np.float64)
    half = modulus - 1 - modulus // 2  # moved up by so much, what stands for a number below zero passes the modulus
    moved = words + np.uint32(half)
    found: np.ndarray = np.minimum(moved, moved - np.uint32(modulus), out=moved).astype(np.float64)
    found -= half
    return found
