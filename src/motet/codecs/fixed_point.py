"""Fixed-point encoding: numbers as integers modulo m, so that masks can be added and the sum of n clients cannot wrap.

For n clients, the absolute value of a word is at most `base`: the largest power of two with n·base ≤ (m−1)/2. The sum of
n words then never passes half the modulus, and its sign is known. A float32 number x is one word, ⌊x·base/max_abs + u⌋ with u
uniform in [0, 1). This rounding is unbiased, and off by less than one step, max_abs/base. A float64 number (a count, a
weight) is two words, high·base + low, so that counts add up exactly. A sum of n terms is off by less than n steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from motet.core.errors import ConfigError, PrivacyError, RunError

BLOCK = 2**16  # numbers at a time, so that temporaries stay small
DOUBLE_RANGE = 2.0**24  # the largest absolute value of a float64 number
MAX_DOUBLE_BASE = 2**26  # two words of this base are exact in a float64


@dataclass(frozen=True)
class FixedPoint:
    """`max_abs` is the largest absolute value of a float32 number. `bits` are the bits per number, None for as many as fit.

    `out_of_range` says what to do with larger numbers.
    """

    max_abs: float = 4.0
    bits: int | None = None
    out_of_range: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        if not 0 < self.max_abs < float("inf"):
            raise ConfigError(
                f"secure.range is {self.max_abs}; expected the largest number a client may send, above 0."
            )
        if self.bits is not None and not 2 <= self.bits <= 31:
            raise ConfigError(f"secure.bits is {self.bits}; expected 2 to 31 of the 32 bits of a word.")

    def base(self, clients: int, modulus: int) -> int:
        """Return the largest absolute value of the word of a float32 number."""
        largest = _largest_base(clients, modulus)
        if self.bits is None:
            return largest
        if 2 ** (self.bits - 1) > largest:
            raise ConfigError(
                f"secure.bits is {self.bits}, but a sum of {clients} such numbers could wrap in words of "
                f"{modulus.bit_length() - 1} bits; use at most {largest.bit_length()}, or leave it out."
            )
        return int(2 ** (self.bits - 1))

    def step(self, clients: int, modulus: int, *, is_double: bool = False) -> float:
        """Return the bound of one client's rounding error. The error of a sum over n clients is below n steps."""
        if is_double:
            return float(DOUBLE_RANGE / _double_base(clients, modulus) ** 2)
        return self.max_abs / self.base(clients, modulus)

    def encode(
        self, numbers: torch.Tensor, factor: float, clients: int, modulus: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Encode factor·numbers as uint32 words; `factor` is at most 1.

        Float64 numbers give two words each: first the high words of all numbers, then the low ones.
        """
        self._check_range(numbers)
        flat = numbers.detach().cpu().numpy()
        if numbers.dtype == torch.float64:
            base = _double_base(clients, modulus)
            scaled = flat * factor * (base * base / DOUBLE_RANGE)
            integers = np.floor(scaled)
            integers += rng.random(flat.size) < scaled - integers  # near 2⁵³, floor(scaled + u) would itself be rounded
            high = np.floor(integers / base)
            return _to_residues(np.concatenate([high, integers - high * base]), modulus)
        words, scale = np.empty(flat.size, np.uint32), factor / self.step(clients, modulus)
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK].astype(np.float64)
            if self.out_of_range == "clip":
                np.clip(block, -self.max_abs, self.max_abs, out=block)
            block *= scale
            block += rng.random(block.size, dtype=np.float32)
            words[start : start + BLOCK] = _to_residues(np.floor(block, out=block), modulus)
        return words

    def decode(self, words: np.ndarray, clients: int, modulus: int, *, is_double: bool) -> torch.Tensor:
        """Decode a sum of words to float64."""
        integers = center_residues(words, modulus)
        if is_double:
            base = _double_base(clients, modulus)
            high, low = np.split(integers, 2)
            return torch.from_numpy((high * base + low) * (DOUBLE_RANGE / (base * base)))
        integers *= self.step(clients, modulus)
        return torch.from_numpy(integers)

    def _check_range(self, numbers: torch.Tensor) -> None:
        """Reject numbers that do not fit. After masking, nobody could see them.

        The error goes to the server, so it does not contain the number.
        """
        if not numbers.numel():
            return
        largest = max(abs(float(end)) for end in torch.aminmax(numbers))  # NaN if any number is NaN
        if not math.isfinite(largest):
            raise RunError("a reply contains numbers that are not finite; they cannot be summed. Lower solver.lr.")
        is_double = numbers.dtype == torch.float64
        limit = DOUBLE_RANGE if is_double else self.max_abs
        if (is_double or self.out_of_range == "refuse") and largest > limit:
            raise PrivacyError(
                f"a reply contains a number outside ±{limit:g}, so the masked sum could wrap; "
                "raise secure.range, or clip such numbers with secure.out_of_range=clip."
            )


def _largest_base(clients: int, modulus: int) -> int:
    """Return the largest power of two such that a sum over all clients does not pass half the modulus."""
    return int(2 ** (max(1, (modulus - 1) // 2 // clients).bit_length() - 1))


def _double_base(clients: int, modulus: int) -> int:
    return min(_largest_base(clients, modulus), MAX_DOUBLE_BASE)


def _to_residues(integers: np.ndarray, modulus: int) -> np.ndarray:
    """Return residues of integers with absolute values up to 2³⁰; no word is larger."""
    words = integers.astype(np.int32).view(np.uint32)
    if modulus == 2**32:
        return words
    # A negative number is a large uint32. Adding the modulus wraps it to its residue, which is then the minimum.
    residues: np.ndarray = np.minimum(words, words + np.uint32(modulus))
    return residues


def center_residues(words: np.ndarray, modulus: int) -> np.ndarray:
    """Return the signed numbers of these residues, as float64."""
    if modulus == 2**32:
        return words.view(np.int32).astype(np.float64)
    half = modulus - 1 - modulus // 2
    shifted = words + np.uint32(half)  # residues of negative numbers now reach the modulus
    reduced: np.ndarray = np.minimum(shifted, shifted - np.uint32(modulus), out=shifted).astype(np.float64)
    reduced -= half
    return reduced
