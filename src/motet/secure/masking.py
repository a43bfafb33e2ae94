"""The interface of masking schemes: how to share secrets, mask a vector, and unmask a sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from motet.core.script import ClientId
from motet.secure.crypto import AgreementKey, BytesLike, RandomBytes
from motet.secure.participants import SumParticipants

OpenShare = Callable[[ClientId], Iterable[memoryview]]  # decrypts the share of a client's secrets, in blocks


class Masking(Protocol):
    """One masking scheme. `client` is the client that runs the method."""

    @property
    def modulus(self) -> int: ...
    @property
    def shares_need_vector(self) -> bool:
        """True if shares depend on the size of the vector, so that the work must come first."""

    def share_holders(self, participants: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        """Return the clients that hold shares of this client's secrets, including itself."""

    def threshold_count(self, holders: int, /) -> int:
        """Return how many share holders must answer to open a sum."""

    def min_survivors(self, clients: int) -> int:
        """Return the smallest number of clients in a sum. Distributed noise must suffice for that many."""

    def is_connected(self, participants: SumParticipants, survivors: Collection[ClientId]) -> bool:
        """Check that the survivors share masks in one connected component."""

    def make_shares(
        self,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        vector_size: int,
        random_bytes: RandomBytes,
    ) -> dict[ClientId, BytesLike]:
        """Return the share of the client's secrets for each share holder."""

    def mask_vector(
        self,
        words: np.ndarray,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        peers: Collection[ClientId],
    ) -> None:
        """Mask a vector in place."""

    def add_upload(self, total: np.ndarray, words: np.ndarray) -> None:
        """total ← total + words, modulo the modulus."""

    def is_valid_answer(self, clients: int, vector_size: int, answer: Any) -> bool:
        """Check that a survivor's answer has the right type and size."""

    def make_answer(
        self, held_shares: Collection[ClientId], open_share: OpenShare, survivors: Collection[ClientId]
    ) -> Any:
        """Return what this survivor contributes to opening the sum over all survivors."""

    def unmask_sum(
        self,
        total: np.ndarray,
        participants: SumParticipants,
        sharing_clients: Sequence[ClientId],
        survivors: Collection[ClientId],
        answers: Mapping[ClientId, Any],
    ) -> None:
        """Remove the masks from the sum, in place."""
