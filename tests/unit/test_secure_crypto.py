"""Keys, encryption, signatures, masks and identities of secure sums."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typer.testing import CliRunner

from motet.cli import app
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.rng import Seed
from motet.secure import crypto, masks
from motet.secure.crypto import (
    AgreementKey,
    SigningKey,
    decrypt_blocks,
    encrypt,
    is_valid_public_key,
    random_source,
    verify_signature,
)
from motet.secure.identities import Identities
from motet.secure.light_secagg_masking import LightSecAggMasking
from motet.secure.masks import BLOCK_BYTES, FieldMask, add_field_mask, add_mask, subtract_mask
from motet.secure.prime_field import FIELD, PrimeField

BLOCK_WORDS = BLOCK_BYTES // 4


def make_key() -> AgreementKey:
    return AgreementKey(os.urandom(32))


# ---- Keys -----------------------------------------------------------------------------------------------------------


def test_two_clients_derive_the_same_key_and_another_for_each_peer_and_purpose() -> None:
    first, second, third = make_key(), make_key(), make_key()
    assert first.derive_key(second.public, "a") == second.derive_key(first.public, "a")
    keys = {
        first.derive_key(second.public, "a"),
        first.derive_key(second.public, "b"),
        first.derive_key(third.public, "a"),
        second.derive_key(third.public, "a"),
    }
    assert len(keys) == 4


SMALL_ORDER_POINTS = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),  # −1
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),  # order eight
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),  # order eight
    (2**255 - 19).to_bytes(32, "little"),  # another encoding of zero
]


@pytest.mark.parametrize("public", [b"", b"short", *SMALL_ORDER_POINTS])
def test_an_invalid_public_key_is_rejected(public: bytes) -> None:
    with pytest.raises(PrivacyError, match="not valid for X25519"):
        make_key().derive_key(public, "a")
    assert not is_valid_public_key(public)
    assert is_valid_public_key(make_key().public)


def test_the_public_key_is_not_the_secret_key() -> None:
    key = make_key()
    assert key.public != key.secret


def test_secrets_come_from_the_system_unless_a_simulation_is_seeded() -> None:
    assert random_source(None) is os.urandom
    seed = Seed(3).derive("anna")
    assert random_source(seed)(32) == random_source(seed)(32)
    assert random_source(seed)(32) != random_source(Seed(3).derive("ben"))(32)
    assert random_source(seed)(32) != random_source(Seed(4).derive("anna"))(32)


# ---- Encryption and signatures --------------------------------------------------------------------------------------


def decrypt(*args: Any) -> bytes:
    return b"".join(map(bytes, decrypt_blocks(*args)))


@pytest.mark.parametrize("size", [0, 5, crypto.BLOCK_BYTES - 1, crypto.BLOCK_BYTES, 2 * crypto.BLOCK_BYTES + 3])
def test_decryption_needs_the_right_key_and_associated_data(size: int) -> None:
    key, plaintext = os.urandom(32), os.urandom(size)
    ciphertext = encrypt(key, plaintext, b"sum 1")
    assert decrypt(key, ciphertext, b"sum 1", "anna") == plaintext
    assert AESGCM(key).decrypt(bytes(12), bytes(ciphertext.numpy()), b"sum 1") == plaintext
    for wrong in (
        (os.urandom(32), ciphertext, b"sum 1"),
        (key, torch.cat([ciphertext[:-1], ciphertext[-1:] ^ 1]), b"sum 1"),
        (key, torch.cat([ciphertext[:1] ^ 1, ciphertext[1:]]), b"sum 1"),
        (key, ciphertext[:-1], b"sum 1"),
        (key, ciphertext, b"sum 2"),
        (key, ciphertext[:3], b"sum 1"),
        (key, ciphertext[:0], b"sum 1"),
        (key, ciphertext.float(), b"sum 1"),
        (key, ciphertext.reshape(1, -1), b"sum 1"),
        (key, bytes(ciphertext.numpy()), b"sum 1"),
    ):
        with pytest.raises(PrivacyError, match="anna"):
            decrypt(*wrong, "anna")


def test_a_signature_is_valid_only_for_its_message() -> None:
    key = SigningKey(os.urandom(32))
    assert verify_signature(key.public, b"list", key.sign(b"list"))
    assert not verify_signature(key.public, b"another", key.sign(b"list"))
    assert not verify_signature(b"no key", b"list", b"no signature")


# ---- Masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, BLOCK_WORDS - 1, BLOCK_WORDS, 2 * BLOCK_WORDS + 7])
def test_subtracting_a_mask_undoes_adding_it(size: int) -> None:
    key, vector = os.urandom(32), np.random.default_rng(1).integers(0, 2**32 - 1, size, dtype=np.uint32)
    masked = vector.copy()
    add_mask(masked, key)
    assert size == 0 or (masked != vector).mean() > 0.99
    subtract_mask(masked, key)
    assert (masked == vector).all()


def test_a_mask_does_not_depend_on_the_length_of_the_vector() -> None:
    key = os.urandom(32)
    short, long = np.zeros(10, np.uint32), np.zeros(BLOCK_BYTES, np.uint32)
    add_mask(short, key)
    add_mask(long, key)
    assert (short == long[:10]).all()


def test_every_bit_of_a_key_matters() -> None:
    """A generator that folds its key to 32 bits would give the same mask for many keys."""
    masks_seen = set()
    keys = [1 << bit for bit in range(256)] + [(1 << 0) | (1 << 32) | (1 << 64)]
    for key in keys:
        words = np.zeros(4, np.uint32)
        add_mask(words, key.to_bytes(32, "little"))
        masks_seen.add(words.tobytes())
    assert len(masks_seen) == 257


def read_field_mask(key: bytes, *sizes: int, position: int = 0) -> np.ndarray:
    """Read elements of a field mask from a position on, in pieces of these sizes."""
    mask, pieces = FieldMask(key, position), [np.empty(size, np.uint32) for size in sizes]
    for piece in pieces:
        mask.fill(piece)
    return np.concatenate(pieces)


@pytest.mark.parametrize(("prime", "block"), [(FIELD.prime, BLOCK_BYTES), (5, 2**14)])  # 5: three of eight draws repeat
def test_a_field_mask_is_uniform_and_the_same_in_any_pieces(
    prime: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "FIELD", PrimeField(prime))
    monkeypatch.setattr(masks, "BLOCK_BYTES", block)
    key, size = os.urandom(32), 2 * block // 4 + 11
    mask = read_field_mask(key, size)
    assert (mask == read_field_mask(key, 3, 0, block // 4, size - 3 - block // 4)).all()
    for position in (1, 2, 3, 4, 1000, block // 4 - 1):
        assert (mask[position:] == read_field_mask(key, size - position, position=position)).all()
    counts = np.bincount((mask.astype(np.uint64) * 5 // prime).astype(int))
    assert len(counts) == 5  # all elements are below the prime
    assert float(((counts - size / 5) ** 2 / (size / 5)).sum()) < 30  # four degrees of freedom
    vector = np.arange(size, dtype=np.uint32) % 5
    masked = vector.copy()
    add_field_mask(masked, key)
    assert (masked == (vector.astype(np.uint64) + mask) % prime).all()


def test_different_keys_give_different_field_masks() -> None:
    first, second = (read_field_mask(os.urandom(32), 1000) for _ in range(2))
    assert (first != second).mean() > 0.99


@pytest.mark.parametrize("lengths", [(5, 8), (8, 5), (8, 12)])
def test_shares_of_different_lengths_are_rejected(lengths: tuple[int, int]) -> None:
    shares = {client: bytes(length) for client, length in zip("ab", lengths, strict=True)}
    with pytest.raises(RunError, match="differ in size"):
        LightSecAggMasking(0.5, 0.7).make_answer(shares, lambda client: [memoryview(shares[client])], tuple(shares))


# ---- Identities -----------------------------------------------------------------------------------------------------


def test_an_identity_is_a_public_and_a_secret_file(tmp_path: Path) -> None:
    identities = Identities(str(tmp_path / "keys"))
    identities.create("anna", os.urandom)
    assert identities.public_keys(["anna"]) == {"anna": identities.signing_key("anna", os.urandom).public}
    assert (tmp_path / "keys" / "anna.key").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match=r"has an identity in .* already"):
        identities.create("anna", os.urandom)
    with pytest.raises(ConfigError, match=r"ben.key does not contain a key"):
        identities.signing_key("ben", os.urandom)
    with pytest.raises(ConfigError, match="cannot be a file name"):
        identities.public_keys(["../anna"])


def test_without_a_folder_there_are_no_known_identities() -> None:
    assert Identities().public_keys(["anna"]) is None


def test_identities_can_be_rotated_and_revoked(tmp_path: Path) -> None:
    """A machine takes part in no sum with a client that was revoked there."""
    folder, identities = tmp_path / "keys", Identities(str(tmp_path / "keys"))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["identities", str(folder), *arguments])
        return f"{result.output}{result.exception or ''}"

    run("anna", "bert")
    (before,) = (identities.public_keys(["anna"]) or {}).values()
    assert "a new one would lock anna out" in run("anna")
    assert identities.public_keys(["anna"]) == {"anna": before}
    run("anna", "--rotate")
    assert identities.public_keys(["anna"]) != {"anna": before}
    assert identities.signing_key("anna", os.urandom).public == (identities.public_keys(["anna"]) or {})["anna"]
    assert stat.S_IMODE((folder / "anna.key").stat().st_mode) == 0o600
    run("anna", "--revoke")
    with pytest.raises(ConfigError, match="the identity of anna was revoked"):
        identities.public_keys(["anna", "bert"])
    assert identities.public_keys(["bert"])
    run("anna", "--rotate")
    assert identities.public_keys(["anna", "bert"])
