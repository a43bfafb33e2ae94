"""All cryptographic primitives: X25519, HKDF-SHA256, AES-256 in CTR and GCM mode, and Ed25519, from `cryptography`.

Every derived key is for one purpose, one sum and one direction. All three are part of its derivation.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from motet.core.errors import ConfigError, PrivacyError
from motet.core.install_hint import install_command
from motet.core.rng import Seed

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ConfigError(f"secure sums need the package cryptography. Run: {install_command('secure')}") from None

KEY_BYTES, TAG_BYTES = 32, 16
BLOCK_BYTES = 2**18  # fits into the cache; filling new memory would take longer than decrypting
CIPHER_SLACK = 15  # update_into needs an output buffer this much longer than the input: the cipher's block size minus 1
_ZERO_NONCE = bytes(12)  # safe because every key encrypts one message only
BytesLike = bytes | memoryview
Ciphertext = torch.Tensor  # uint8: the encrypted bytes, then the authentication tag
RandomBytes = Callable[[int], bytes]


def random_source(seed: Seed | None) -> RandomBytes:
    """Return the random generator of the operating system, or for simulations a reproducible stream from a seed."""
    if seed is None:
        return os.urandom
    stream = keystream(hashlib.sha256(f"{seed.root}/{seed.path}".encode()).digest())
    return lambda count: stream.update(bytes(count))


class AgreementKey:
    """An X25519 secret key. With another client's public key it gives a secret that only these two clients know."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self.private.public_key().public_bytes_raw()

    def derive_key(self, public: bytes, purpose: str) -> bytes:
        """Return the key that two clients share for one purpose."""
        try:
            shared_secret = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise PrivacyError(
                f"received a public key of {len(public)} bytes that is not valid for X25519; it is rejected."
            ) from None
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(shared_secret)


def is_valid_public_key(public: bytes) -> bool:
    """Check that other clients can derive keys with this public key: right length, and not a point of small order."""
    try:
        AgreementKey(os.urandom(KEY_BYTES)).derive_key(public, "")
    except PrivacyError:
        return False
    return True


def encrypt(key: bytes, plaintext: BytesLike, associated_data: bytes) -> Ciphertext:
    """Encrypt and authenticate with AES-GCM. A key must encrypt one message only, because the nonce is always zero."""
    view, ciphertext = memoryview(plaintext), torch.empty(len(plaintext) + TAG_BYTES, dtype=torch.uint8)
    output = ciphertext.numpy()
    cipher = Cipher(algorithms.AES(key), modes.GCM(_ZERO_NONCE)).encryptor()
    cipher.authenticate_additional_data(associated_data)
    for start in range(0, len(plaintext), BLOCK_BYTES):
        # The space of the tag serves as the slack that update_into needs.
        cipher.update_into(view[start : start + BLOCK_BYTES], output[start:].data)
    cipher.finalize()
    output[len(plaintext) :] = np.frombuffer(cipher.tag, np.uint8)
    return ciphertext


def is_ciphertext(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def decrypt_blocks(key: bytes, ciphertext: Ciphertext, associated_data: bytes, sender: str) -> Iterator[memoryview]:
    """Decrypt block by block, always into the same memory.

    The ciphertext is authenticated only after the last block; a forged one raises an error then. Until then nothing
    that was computed from the blocks may leave the client.
    """
    try:
        if not is_ciphertext(ciphertext):
            raise ValueError
        view = ciphertext.numpy().data
        body, block = view[:-TAG_BYTES], bytearray(min(BLOCK_BYTES, len(view)) + CIPHER_SLACK)
        cipher = Cipher(algorithms.AES(key), modes.GCM(_ZERO_NONCE, bytes(view[-TAG_BYTES:]))).decryptor()
        cipher.authenticate_additional_data(associated_data)
        for start in range(0, len(body), BLOCK_BYTES):
            yield memoryview(block)[: cipher.update_into(body[start : start + BLOCK_BYTES], block)]
        cipher.finalize()
    except (InvalidTag, ValueError):
        raise PrivacyError(f"the share from {sender} was not encrypted by it for this sum; it is rejected.") from None


def keystream(key: bytes, first_block: int = 0) -> CipherContext:
    """Return the AES-256-CTR keystream from a block of 16 bytes on: encrypting zeros gives uniform bytes."""
    return Cipher(algorithms.AES(key), modes.CTR(first_block.to_bytes(16, "big"))).encryptor()


@dataclass(frozen=True)
class SigningKey:
    """A client's Ed25519 key. Its signatures prove to other clients who sent a message."""

    secret: bytes

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(message)


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
