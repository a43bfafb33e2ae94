"""Shamir's secret sharing: any `threshold` shares recover a secret, fewer reveal nothing about it.

A secret of 32 bytes is nine field elements of 29 bits, each shared by its own polynomial. All secrets of a client are
shared by one matrix product. The share holder at position k has the values of the polynomials at k + 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from motet.secure.crypto import RandomBytes
from motet.secure.prime_field import FIELD, Elements

SECRET_BYTES, LIMB_BITS = 32, 29
LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
SHARE_BYTES = 4 * LIMBS  # of one secret


def split_secrets(secrets: Sequence[bytes], holders: int, threshold: int, random_bytes: RandomBytes) -> Elements:
    """Return shares of shape [holders, secrets, LIMBS]."""
    constants = np.stack([_to_limbs(secret) for secret in secrets]).reshape(1, -1)
    random_part = FIELD.random(random_bytes, (threshold - 1) * constants.size)
    coefficients = np.concatenate([constants, random_part.reshape(threshold - 1, constants.size)])
    values = FIELD.product(FIELD.powers(range(1, holders + 1), threshold), coefficients)
    return values.reshape(holders, len(secrets), LIMBS)


def recover_secrets(shares: Mapping[int, Elements], threshold: int) -> list[bytes]:
    """Recover the secrets from shares of shape [secrets, LIMBS], by the position of their holder."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares cannot recover a secret; {threshold} are needed")
    positions = sorted(shares)[:threshold]
    values = np.stack([shares[k].reshape(-1) for k in positions])
    to_constants = FIELD.interpolation([k + 1 for k in positions], [0])
    return [_to_bytes(limbs) for limbs in FIELD.product(to_constants, values).reshape(-1, LIMBS)]


def _to_limbs(secret: bytes) -> Elements:
    number = int.from_bytes(secret, "little")
    return np.array([number >> (LIMB_BITS * k) & (2**LIMB_BITS - 1) for k in range(LIMBS)], np.uint32)


def _to_bytes(limbs: Elements) -> bytes:
    """Join limbs.

    Shares of different secrets give limbs of up to 31 bits; the result is then wrong, but still 32 bytes.
    """
    number = sum(int(limb) << (LIMB_BITS * k) for k, limb in enumerate(limbs))
    secret: bytes = (number % 2 ** (8 * SECRET_BYTES)).to_bytes(SECRET_BYTES, "little")
    return secret
