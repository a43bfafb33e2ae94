"""Shamir's secret sharing: any `threshold` shares of a secret give it back, fewer say nothing of it.

A secret of 32 bytes is nine elements of 29 bits, each shared by a polynomial of its own; all secrets of a client are shared
by one product of matrices. The holder with place k has the polynomials' values at k + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from motet.secure.prime_field import FIELD, Elements

SECRET, BITS = 32, 29
LIMBS = -(-8 * SECRET // BITS)


def split_secrets(secrets: Sequence[bytes], holders: int, threshold: int, draw: Callable[[int], bytes]) -> Elements:
    """Shares [holders, secrets, limbs]."""
    constant = np.stack([_limbs(s) for s in secrets]).reshape(1, -1)
    higher = FIELD.random(draw, (threshold - 1) * constant.size).reshape(threshold - 1, constant.size)
    values = FIELD.product(FIELD.powers(range(1, holders + 1), threshold), np.concatenate([constant, higher]))
    return values.reshape(holders, len(secrets), LIMBS)


def recover_secrets(shares: Mapping[int, Elements], threshold: int) -> list[bytes]:
    """The secrets, from the shares [secrets, limbs] of at least `threshold` holders by their places."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares cannot give back what {threshold} are needed for")
    places = sorted(shares)[:threshold]
    values = np.stack([shares[k].reshape(-1) for k in places])
    zero = FIELD.interpolation([k + 1 for k in places], [0])
    return [_bytes(row) for row in FIELD.product(zero, values).reshape(-1, LIMBS)]


def _limbs(secret: bytes) -> Elements:
    number = int.from_bytes(secret, "little")
    return np.array([number >> (BITS * k) & (2**BITS - 1) for k in range(LIMBS)], np.uint32)


def _bytes(limbs: Elements) -> bytes:
    """Shares that do not belong together give limbs of up to 31 bits; the bytes are then as wrong as they are."""
    number = sum(int(limb) << (BITS * k) for k, limb in enumerate(limbs))
    found: bytes = (number % 2 ** (8 * SECRET)).to_bytes(SECRET, "little")
    return found
