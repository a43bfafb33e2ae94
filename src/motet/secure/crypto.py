"""All cryptography there is: X25519, HKDF-SHA256, AES-256 in counter mode and in GCM, Ed25519, from `cryptography`.

Every agreed key is for one purpose, one sum and one direction: what it is for goes into its derivation.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from motet.core.errors import ConfigError, PrivacyError
from motet.core.rng import Seed

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ConfigError("secure sums need the package cryptography; pip install 'motet[secure]'") from None

KEY_BYTES, TAG_BYTES = 32, 16
BLOCK = 2**18  # bytes at a time, small enough for the cache: to fill fresh memory takes longer than to decipher it
BytesLike = bytes | memoryview
Ciphertext = torch.Tensor  # of uint8: what was sealed, and its tag
RandomBytes = Callable[[int], bytes]


def random_source(seed: Seed | None) -> RandomBytes:
    """The operating system's generator; or, for a simulation that wants the same masks again, a stream made from a seed."""
    if seed is None:
        return os.urandom
    stream = keystream(hashlib.sha256(f"{seed.root}/{seed.path}".encode()).digest())
    return lambda count: stream.update(bytes(count))


class AgreementKey:
    """A secret key of X25519, with which any other client's public key gives what only these two know."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self.private.public_key().public_bytes_raw()

    def agreed(self, public: bytes, purpose: str) -> bytes:
        """The 32 bytes that two clients share for one purpose."""
        try:
            shared = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise PrivacyError(
                f"a public key of {len(public)} bytes came that X25519 cannot agree with; refused."
            ) from None
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(shared)


def is_valid_public_key(public: bytes) -> bool:
    """Whether a public key is one that anybody can agree with: of the right length, and no point of small order."""
    try:
        AgreementKey(os.urandom(KEY_BYTES)).agreed(public, "")
    except PrivacyError:
        return False
    return True


def encrypt(key: bytes, text: BytesLike, about: bytes) -> Ciphertext:
    """Encrypt and authenticate, AES-GCM. A key seals one message only, so that the nonce may be zero."""
    plain, sealed = memoryview(text), torch.empty(len(text) + TAG_BYTES, dtype=torch.uint8)
    box = sealed.numpy()
    cipher = Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()
    cipher.authenticate_additional_data(about)
    for at in range(0, len(text), BLOCK):
        cipher.update_into(plain[at : at + BLOCK], box[at:].data)  # the tag's place is the room that this asks for
    cipher.finalize()
    box[len(text) :] = np.frombuffer(cipher.tag, np.uint8)
    return sealed


def is_ciphertext(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def decrypt_blocks(key: bytes, box: Ciphertext, about: bytes, sender: str) -> Iterator[memoryview]:
    """What was sealed, a block at a time in the same memory. Only after the last is it known to be genuine, or refused: until
    then nothing that was made of it may be given out."""
    try:
        if not is_ciphertext(box):
            raise ValueError
        sealed = box.numpy().data
        text, room = sealed[:-TAG_BYTES], bytearray(min(BLOCK, len(sealed)) + 15)  # 15: update_into asks for them
        cipher = Cipher(algorithms.AES(key), modes.GCM(bytes(12), bytes(sealed[-TAG_BYTES:]))).decryptor()
        cipher.authenticate_additional_data(about)
        for at in range(0, len(text), BLOCK):
            yield memoryview(room)[: cipher.update_into(text[at : at + BLOCK], room)]
        cipher.finalize()
    except (InvalidTag, ValueError):
        raise PrivacyError(
            f"what came as a share from {sender} was not written by it for this sum; it is refused."
        ) from None


def keystream(key: bytes, block: int = 0) -> CipherContext:
    """The keystream of AES-256 in counter mode, from some block of 16 bytes on: zeros go in, uniform bytes come out."""
    return Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()


@dataclass(frozen=True)
class SigningKey:
    """A client's identity: it signs what its peers must be sure it said."""

    secret: bytes

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(text)


def verify_signature(public: bytes, text: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
