"""Noise inside the integers of a sum: every client adds a part of it, and only the sum has it all (Agarwal et al. 2021).

A reply is scaled so that a vector as long as the clip is `grain` integers long, rounded without bias, and rounded anew should
that have made it longer than `grain`. Then every number gets Skellam noise, the difference of two Poisson numbers. Skellam
numbers add up to Skellam numbers: h clients that add a variance of (z·grain)²/h each give exactly that of the mechanism, and
more clients give more. So h is the fewest that can be in a sum, less those who might tell the server their own part.

The sum of n clients stays on its side of half the modulus: n·grain for what they say, and √(2·s·V) + s/3 for noise of variance
V, which it exceeds less than once in e^s/2 numbers (Bernstein; s = 50: 4·10⁻²² a number).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import torch

from motet.codecs.fixed_point import BLOCK, center_residues
from motet.core.errors import ConfigError, RunError

MAX_RESOLUTION = (
    2**18
)  # integers a clip: far finer than the noise; finer still, numpy's Poisson numbers would be drawn less exactly
MIN_RESOLUTION = 2**12  # what the accounting relies on, whoever takes part
TAIL_EXPONENT = 50.0
ROUNDING_SLACK = 6.0  # rounding lengthens a vector by more than it is given room for with probability e^(−SLACK²/2)


@dataclass(frozen=True)
class SkellamNoise:
    """`noise` is the deviation in the sum over `clip`; `colluders`: the share of clients whose noise does not count."""

    clip: float
    noise: float
    colluders: float = 0.0
    seeded: bool = False

    def sharers(self, clients: int, fewest: int) -> int:
        """Over how many clients the noise is divided, where at least `fewest` of `clients` are in a sum."""
        counted = fewest - math.floor(self.colluders * clients + 1e-9)
        if counted < 1:
            raise ConfigError(
                f"privacy.colluders is {self.colluders:g}: of {clients} clients {fewest} may be all that are in a sum, and "
                "none would be left whose noise counts; lower it, or raise secure.threshold."
            )
        return counted

    def grain(self, clients: int, fewest: int, modulus: int) -> int:
        """How many integers long a vector is that is as long as the clip: as many as leave room for the sum and its noise."""
        share = clients / self.sharers(clients, fewest)
        found = MAX_RESOLUTION
        while (
            found * (clients + self.noise * math.sqrt(2 * TAIL_EXPONENT * share)) + TAIL_EXPONENT / 3
            > (modulus - 1) // 2
        ):
            found //= 2
        if found < MIN_RESOLUTION:
            raise ConfigError(
                f"a sum of {clients} clients under noise of {self.noise:g} clips leaves {found} integers for a clip in words "
                f"of {modulus.bit_length() - 1} bits, and {MIN_RESOLUTION} are needed; ask fewer clients at a time, or lower "
                "privacy.noise."
            )
        return found

    def encode(
        self, numbers: torch.Tensor, clients: int, fewest: int, modulus: int, rounding: np.random.Generator
    ) -> np.ndarray:
        """Words, one a number: this client's part of the sum and of its noise."""
        grain = self.grain(clients, fewest, modulus)
        whole = self._rounded(numbers, grain, rounding)
        rate = (self.noise * grain) ** 2 / self.sharers(clients, fewest) / 2
        key = rounding.bytes(16) if self.seeded else os.urandom(16)
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        words = np.empty(whole.size, np.uint32)
        for at in range(0, whole.size, BLOCK):
            piece = whole[at : at + BLOCK].astype(np.int64)
            piece += rng.poisson(rate, piece.size)
            piece -= rng.poisson(rate, piece.size)
            words[at : at + BLOCK] = piece % modulus
        return words

    def decode(self, words: np.ndarray, clients: int, fewest: int, modulus: int) -> torch.Tensor:
        """The noisy sum, in double precision."""
        return torch.from_numpy(center_residues(words, modulus) * (self.clip / self.grain(clients, fewest, modulus)))

    def _rounded(self, numbers: torch.Tensor, grain: int, rng: np.random.Generator) -> np.ndarray:
        """Integers at most `grain` long, whatever was given: it is on this that ε rests."""
        flat = numbers.detach().cpu().numpy()
        length = float(torch.linalg.vector_norm(numbers, dtype=torch.float64))
        if not math.isfinite(length):
            raise RunError("a reply holds numbers that are not finite, which no sum can hold; lower the learning rate.")
        scale = min(grain / self.clip, _inner(grain, flat.size) / max(length, 1e-300))
        whole = np.empty(flat.size, np.int32)
        while True:
            square = 0
            for at in range(0, flat.size, BLOCK):
                piece = flat[at : at + BLOCK].astype(np.float64)
                piece *= scale
                piece += rng.random(piece.size, dtype=np.float32)
                np.floor(piece, out=piece)
                square += int(piece @ piece)
                whole[at : at + BLOCK] = piece
            if square <= grain**2:
                return whole


def _inner(grain: int, size: int) -> float:
    """How long a vector may be so that, rounded, it is hardly ever longer than `grain`.

    x² + size/4 + SLACK·(x + √size/2) = grain²                                            (Kairouz, Liu and Steinke 2021)
    """
    square = grain**2 - size / 4 - ROUNDING_SLACK * math.sqrt(size) / 2 + ROUNDING_SLACK**2 / 4
    if square < (grain / 2) ** 2:
        raise ConfigError(
            f"{size} numbers rounded to steps of 1/{grain} of privacy.clip would be longer by their rounding than by what they "
            "say; ask fewer clients at a time, or share fewer layers."
        )
    return math.sqrt(square) - ROUNDING_SLACK / 2
