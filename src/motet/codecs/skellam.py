"""Skellam noise inside the integers of a secure sum: each client adds a share, only the sum has all (Agarwal et al. 2021).

A reply is scaled so that a vector as long as the clip is `resolution` integers long. It is rounded without bias, and
rounded again if that makes it longer than `resolution`. Then every number gets Skellam noise, the difference of two
Poisson numbers. A sum of Skellam numbers is Skellam: h clients that each add a variance of (z·resolution)²/h together
give exactly the noise of the mechanism, and more clients give more. So h is the smallest number of clients in a sum,
minus those who might tell the server their share of the noise.

A sum of n clients must not pass half the modulus. The replies need n·resolution. Noise of variance V needs √(2·s·V) +
s/3, which it exceeds with a probability below 2·e^(−s) per number (Bernstein; s = 50 gives 4·10⁻²²).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import torch

from motet.codecs.fixed_point import BLOCK, center_residues
from motet.core.errors import ConfigError, RunError

# Much finer than the noise. With a higher resolution, numpy's Poisson sampler would be less exact.
MAX_RESOLUTION = 2**18
MIN_RESOLUTION = 2**12  # the privacy accounting assumes at least this
TAIL_EXPONENT = 50.0  # s above
ROUNDING_SLACK = 6.0  # rounding needs more space than reserved with probability e^(−ROUNDING_SLACK²/2)


@dataclass(frozen=True)
class SkellamNoise:
    """`noise_multiplier` is the standard deviation in the sum, in units of `clip`.

    `colluders` is the share of clients that may tell the server their noise, so that it does not count.
    """

    clip: float
    noise_multiplier: float
    colluders: float = 0.0
    seeded: bool = False

    def honest_survivors(self, clients: int, min_survivors: int) -> int:
        """Return by how many clients the noise is divided, if at least `min_survivors` of `clients` are in a sum."""
        honest = min_survivors - math.floor(self.colluders * clients + 1e-9)
        if honest < 1:
            raise ConfigError(
                f"privacy.colluders is {self.colluders:g}: a sum over {clients} clients may contain only {min_survivors}, "
                "and all of them might collude, so that no noise counts; lower it, or raise secure.threshold."
            )
        return honest

    def resolution(self, clients: int, min_survivors: int, modulus: int) -> int:
        """Return the length in integers of a vector as long as the clip: as large as the sum and its noise allow."""
        excess = clients / self.honest_survivors(clients, min_survivors)
        resolution = MAX_RESOLUTION
        noise_range = self.noise_multiplier * math.sqrt(2 * TAIL_EXPONENT * excess)
        while resolution * (clients + noise_range) + TAIL_EXPONENT / 3 > (modulus - 1) // 2:
            resolution //= 2
        if resolution < MIN_RESOLUTION:
            raise ConfigError(
                f"a sum of {clients} clients with privacy.noise={self.noise_multiplier:g} leaves a resolution of "
                f"{resolution} in words of {modulus.bit_length() - 1} bits, and {MIN_RESOLUTION} is needed; "
                "use a smaller cohort.size, or lower privacy.noise."
            )
        return resolution

    def encode(
        self, numbers: torch.Tensor, clients: int, min_survivors: int, modulus: int, rounding: np.random.Generator
    ) -> np.ndarray:
        """Encode this client's numbers and its share of the noise, one word per number."""
        resolution = self.resolution(clients, min_survivors, modulus)
        integers = self._round(numbers, resolution, rounding)
        variance = (self.noise_multiplier * resolution) ** 2 / self.honest_survivors(clients, min_survivors)
        key = rounding.bytes(16) if self.seeded else os.urandom(16)
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        words = np.empty(integers.size, np.uint32)
        for start in range(0, integers.size, BLOCK):
            block = integers[start : start + BLOCK].astype(np.int64)
            block += rng.poisson(variance / 2, block.size)
            block -= rng.poisson(variance / 2, block.size)
            words[start : start + BLOCK] = block % modulus
        return words

    def decode(self, words: np.ndarray, clients: int, min_survivors: int, modulus: int) -> torch.Tensor:
        """Decode the noisy sum to float64."""
        step = self.clip / self.resolution(clients, min_survivors, modulus)
        return torch.from_numpy(center_residues(words, modulus) * step)

    def _round(self, numbers: torch.Tensor, resolution: int, rng: np.random.Generator) -> np.ndarray:
        """Return integers with an L2 norm of at most `resolution`, for any input.

        The privacy guarantee rests on this.
        """
        flat = numbers.detach().cpu().numpy()
        norm = float(torch.linalg.vector_norm(numbers, dtype=torch.float64))
        if not math.isfinite(norm):
            raise RunError("a reply contains numbers that are not finite; they cannot be summed. Lower solver.lr.")
        scale = min(resolution / self.clip, _max_norm_before_rounding(resolution, flat.size) / max(norm, 1e-300))
        integers = np.empty(flat.size, np.int32)
        while True:
            squared_norm = 0
            for start in range(0, flat.size, BLOCK):
                block = flat[start : start + BLOCK].astype(np.float64)
                block *= scale
                block += rng.random(block.size, dtype=np.float32)
                np.floor(block, out=block)
                squared_norm += int(block @ block)
                integers[start : start + BLOCK] = block
            if squared_norm <= resolution**2:
                return integers


def _max_norm_before_rounding(resolution: int, size: int) -> float:
    """Return the norm x at which a rounded vector is very rarely longer than `resolution`.

    x² + size/4 + ROUNDING_SLACK·(x + √size/2) = resolution²                              (Kairouz, Liu and Steinke 2021)
    """
    square = resolution**2 - size / 4 - ROUNDING_SLACK * math.sqrt(size) / 2 + ROUNDING_SLACK**2 / 4
    if square < (resolution / 2) ** 2:
        raise ConfigError(
            f"rounding {size} numbers to steps of 1/{resolution} of privacy.clip would leave less than half of the norm for "
            "the numbers themselves; use a smaller cohort.size, or share fewer layers."
        )
    return math.sqrt(square) - ROUNDING_SLACK / 2
