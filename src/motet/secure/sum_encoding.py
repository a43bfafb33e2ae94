"""Encodes a reply as integers for a secure sum, and decodes the sum to a mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from motet.codecs.chain import CodecChain, EncodedParams
from motet.codecs.clip import limit_norm
from motet.codecs.fixed_point import FixedPoint
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.weighted import PartialSum, Weighted
from motet.secure.client_session import EncodedVector
from motet.secure.masking import Masking
from motet.secure.sum_messages import MaskedTotal

WEIGHT_WORDS = 2  # a vector ends with the two words of its weight


@dataclass(frozen=True)
class SumEncoding:
    """Encodes a reply's numbers times its weight, and then the weight.

    Float32 numbers are scaled by weight / `max_weight`. `noise` is added inside the integers of some methods'
    replies, by their address. `max_norms` are the largest norms of some methods' replies, also after rounding; these
    replies have weight 1.
    """

    fixed_point: FixedPoint = FixedPoint()
    max_weight: float = 1024.0
    codecs: CodecChain = CodecChain()
    noise: Mapping[str, SkellamNoise] = field(default_factory=dict)
    max_norms: Mapping[str, float] = field(default_factory=dict)

    def encode(
        self, reply: Weighted, address: str, clients: int, masking: Masking, rng: np.random.Generator
    ) -> EncodedVector:
        if not 0 <= reply.weight <= self.max_weight:
            raise ConfigError(
                f"a reply has a weight above secure.max_weight={self.max_weight:g}, or below 0; raise it to the "
                "largest number of examples of a client, or use algorithm.weighting=uniform."
            )
        numbers = self._encode_numbers(reply, address, clients, masking, rng)
        weight = torch.tensor([reply.weight], dtype=torch.float64)
        weight_words = self.fixed_point.encode(weight, 1.0, clients, masking.modulus, rng)
        is_double = reply.value.flat.dtype == torch.float64
        return EncodedVector(reply.value.layout, is_double, np.concatenate([numbers, weight_words]))

    def word_count(self, size: int, is_double: bool, address: str) -> int:
        """Return the words of an encoded vector of `size` numbers. With noise, every number is one word."""
        return size * (2 if is_double and address not in self.noise else 1) + WEIGHT_WORDS

    def decode(self, words: np.ndarray, total: MaskedTotal, address: str, clients: int, masking: Masking) -> Weighted:
        """Return the weighted mean from the unmasked words of a sum over `total.clients`."""
        weight = float(self.fixed_point.decode(words[-WEIGHT_WORDS:], clients, masking.modulus, is_double=True))
        if not 0 <= weight <= len(total.clients) * self.max_weight:
            raise RunError(
                "the sum has weights that its clients cannot have, so a client sent a false share or vector; "
                "the sum is discarded."
            )
        numbers = self._decode_numbers(words[:-WEIGHT_WORDS], total.is_double, address, clients, masking)
        mean = PartialSum(Params(total.layout, numbers), weight).mean()
        if total.is_double:
            return mean
        self._check_mean(mean, address, clients, masking)
        side_info = (None,) * len(self.codecs.codecs)
        decoded: Params = self.codecs.decode(EncodedParams(total.layout, mean.value.flat.float(), side_info))
        return Weighted(decoded, mean.weight)

    def _check_mean(self, mean: Weighted, address: str, clients: int, masking: Masking) -> None:
        """Raise an error if the mean has a number that no client may send. Then a client sent a false vector or share."""
        if address in self.noise or not mean.value.flat.numel():
            return
        limit = self.fixed_point.max_abs
        rounding = clients * self.fixed_point.step(clients, masking.modulus) * self._scale(address) / mean.weight
        largest = float(mean.value.flat.abs().max())
        if largest > limit + rounding:
            raise RunError(
                f"the mean of a secure sum has a number of size {largest:g}, and no client may send one above {limit:g} "
                "(secure.range), so a client sent a false vector or share; the sum is discarded."
            )

    def _encode_numbers(
        self, reply: Weighted, address: str, clients: int, masking: Masking, rng: np.random.Generator
    ) -> np.ndarray:
        encoded = self.codecs.encode(reply.value)
        flat = encoded.body if isinstance(encoded, EncodedParams) else reply.value.flat
        if address in self.noise:
            min_survivors = masking.min_survivors(clients)
            return self.noise[address].encode(flat * reply.weight, clients, min_survivors, masking.modulus, rng)
        if address in self.max_norms:
            flat = self._limit_norm(flat, self.max_norms[address], clients, masking.modulus)
        if flat.dtype == torch.float64:
            return self.fixed_point.encode(flat * reply.weight, 1.0, clients, masking.modulus, rng)
        return self.fixed_point.encode(flat, reply.weight / self._scale(address), clients, masking.modulus, rng)

    def _scale(self, address: str) -> float:
        return 1.0 if address in self.max_norms else self.max_weight

    def _limit_norm(self, flat: torch.Tensor, max_norm: float, clients: int, modulus: int) -> torch.Tensor:
        """Shorten a vector so that it does not exceed `max_norm` after each number is rounded by up to one step."""
        step = self.fixed_point.step(clients, modulus, is_double=flat.dtype == torch.float64)
        rounding = step * math.sqrt(flat.numel())
        if rounding > max_norm / 2:
            raise ConfigError(
                f"rounding {flat.numel()} numbers inside a secure sum adds a norm of up to {rounding:g}, and privacy.clip is "
                f"{max_norm:g}; lower secure.range ({self.fixed_point.max_abs:g}), or raise secure.bits or privacy.clip."
            )
        return limit_norm(flat, max_norm - rounding)

    def _decode_numbers(
        self, words: np.ndarray, is_double: bool, address: str, clients: int, masking: Masking
    ) -> torch.Tensor:
        """Return the sum of the numbers times their weights."""
        if address in self.noise:
            return self.noise[address].decode(words, clients, masking.min_survivors(clients), masking.modulus)
        numbers = self.fixed_point.decode(words, clients, masking.modulus, is_double=is_double)
        return numbers * (1.0 if is_double else self._scale(address))
