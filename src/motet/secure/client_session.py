"""A client's state during one secure sum: its secrets, its progress, and the shares that it holds for others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from motet.core.errors import PrivacyError
from motet.core.params import Layout
from motet.core.script import ClientId
from motet.secure.crypto import AgreementKey, Ciphertext, SigningKey, decrypt_blocks
from motet.secure.participants import PublicKeys, SumParticipants

STAGES = ("advertise", "share", "upload", "confirm", "reveal")


@dataclass
class EncodedVector:
    """A client's term of the sum as integers, before and after masking."""

    layout: Layout
    is_double: bool
    words: np.ndarray


class SumSecrets(NamedTuple):
    """The secrets that a client creates for one sum."""

    encryption_key: AgreementKey
    mask_key: AgreementKey
    mask_seed: bytes
    signing_key: SigningKey


class SealedShare(NamedTuple):
    """A share that this client holds, still encrypted.

    LightSecAgg's shares are as long as the vector. In a simulation the ciphertext is the object that the server
    forwarded, so the shares of all clients are in memory once.
    """

    ciphertext: Ciphertext
    key: bytes


@dataclass
class ClientSession:
    """One sum at one client. It is never written to disk, and unlike other client states it is changed in place.

    A stage counts as done when it begins. So two simultaneous requests cannot both pass, and a failed stage cannot be
    repeated with the same masks.
    """

    client: ClientId
    round: int
    topic: str
    public_keys: PublicKeys
    secrets: SumSecrets | None
    stage: str = "advertise"
    participants: SumParticipants = SumParticipants(0, "", {})
    held_shares: dict[ClientId, SealedShare] = field(default_factory=dict)  # by the owner of the secrets
    vector: EncodedVector | None = None
    survivors: tuple[ClientId, ...] = ()
    signed_sums: dict[str, tuple[ClientId, ...]] = field(default_factory=dict)  # survivors in this round, by address

    def begin_stage(self, stage: str, round: int) -> SumSecrets:
        """Begin a stage. Each stage runs once, directly after the one before, in the round in which the sum began."""
        previous = STAGES[STAGES.index(stage) - 1]
        if self.stage != previous or self.round != round or self.secrets is None:
            raise PrivacyError(
                f"'{stage}' was requested in round {round + 1}, but this client has last run '{self.stage}' of a sum of "
                f"round {self.round + 1}; every stage runs once and in order. Begin a new sum."
            )
        self.stage = stage
        return self.secrets

    def check_not_replaced(self, secrets: SumSecrets) -> None:
        """Raise an error if the server began another sum while this client was working.

        A new sum erases the peers to mask with, so the upload would have only the client's own mask.
        """
        if self.secrets is not secrets:
            raise PrivacyError("another sum began while this client was working on this one; nothing is uploaded.")

    def open_share(self, owner: ClientId) -> Iterator[memoryview]:
        """Decrypt a share of another client's secrets, in blocks. Raise an error if that client did not encrypt it."""
        ciphertext, key = self.held_shares[owner]
        return decrypt_blocks(key, ciphertext, self.participants.digest.encode(), owner)

    def derive_share_key(self, secrets: SumSecrets, sender: ClientId, receiver: ClientId) -> bytes:
        """Return the key for the share from `sender` to `receiver`. One of them is this client."""
        peer = receiver if sender == self.client else sender
        peer_key = self.participants.public_keys[peer].encryption_key
        purpose = f"share {sender}>{receiver} {self.participants.digest}"
        return secrets.encryption_key.derive_key(peer_key, purpose)

    def erase(self) -> None:
        """Forget all secrets."""
        self.secrets = self.vector = None
        self.held_shares.clear()
