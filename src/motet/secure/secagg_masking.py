"""SecAgg (Bonawitz et al. 2017) and SecAgg+ (Bell et al. 2020): masks that two clients agree on cancel in the sum.

    y_u = x_u + PRG(b_u) + Σ_{v<u} PRG(s_uv) − Σ_{v>u} PRG(s_uv)   mod 2³²                       (Bonawitz et al., section 4)

The seed b_u and the key behind all s_uv are shared among u's share holders. For a client in the sum they reveal shares
of the seed, for a lost client shares of the key. They never reveal both, or the client's upload could be read. SecAgg+
is the same on a sparse graph of neighbors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, RunError
from motet.core.script import ClientId
from motet.secure.crypto import AgreementKey, BytesLike, RandomBytes
from motet.secure.mask_graph import CompleteGraph, RingGraph, is_connected, threshold_count
from motet.secure.masking import OpenShare
from motet.secure.masks import add_mask, subtract_mask
from motet.secure.participants import SumParticipants
from motet.secure.shamir import SHARE_BYTES, recover_secrets, split_secrets

RevealedShares = dict[ClientId, bytes]  # owner of the secret -> this holder's share of it


@dataclass(frozen=True)
class SecAggMasking:
    threshold: float
    graph: CompleteGraph | RingGraph
    modulus: int = 2**32
    shares_need_vector: bool = False

    def __post_init__(self) -> None:
        if not 0.5 <= self.threshold < 1:
            raise ConfigError(
                f"secure.threshold is {self.threshold:g}; more than this share of the clients must finish. Expected at least "
                "0.5, or a server could open two sums of one round, and below 1."
            )

    def share_holders(self, participants: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        return self.graph.share_holders(participants, client)

    def threshold_count(self, holders: int) -> int:
        return threshold_count(holders, self.threshold)

    def min_survivors(self, clients: int) -> int:
        return self.graph.min_survivors(clients, self.threshold)

    def is_connected(self, participants: SumParticipants, survivors: Collection[ClientId]) -> bool:
        return is_connected(self.graph, participants, survivors)

    def make_shares(
        self,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        vector_size: int,
        random_bytes: RandomBytes,
    ) -> dict[ClientId, BytesLike]:
        holders = self.share_holders(participants, client)
        threshold = self.threshold_count(len(holders))
        shares = split_secrets([mask_seed, mask_key.secret], len(holders), threshold, random_bytes)
        return {holder: shares[k].tobytes() for k, holder in enumerate(holders)}

    def mask_vector(
        self,
        words: np.ndarray,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        peers: Collection[ClientId],
    ) -> None:
        add_mask(words, mask_seed)
        for peer in peers:
            if peer != client:
                apply_mask = add_mask if client > peer else subtract_mask
                apply_mask(words, _pair_key(mask_key, participants, peer))

    def add_upload(self, total: np.ndarray, words: np.ndarray) -> None:
        np.add(total, words, out=total)

    def is_valid_answer(self, clients: int, vector_size: int, answer: Any) -> bool:
        return isinstance(answer, dict) and all(isinstance(share, bytes) for share in answer.values())

    def make_answer(
        self, held_shares: Collection[ClientId], open_share: OpenShare, survivors: Collection[ClientId]
    ) -> RevealedShares:
        """Reveal the share of the seed of each survivor, and the share of the key of each lost client."""
        answer = {}
        for owner in held_shares:
            share = b"".join(map(bytes, open_share(owner)))
            answer[owner] = share[:SHARE_BYTES] if owner in survivors else share[SHARE_BYTES:]
        return answer

    def unmask_sum(
        self,
        total: np.ndarray,
        participants: SumParticipants,
        sharing_clients: Sequence[ClientId],
        survivors: Collection[ClientId],
        answers: Mapping[ClientId, RevealedShares],
    ) -> None:
        """Remove the survivors' own masks, and the pairwise masks that lost clients would have canceled."""
        secrets = {client: self._recover_secret(participants, client, answers) for client in sharing_clients}
        for client in sharing_clients:
            if client in survivors:
                subtract_mask(total, secrets[client])
                continue
            key = AgreementKey(secrets[client])
            if key.public != participants.public_keys[client].mask_key:
                raise RunError(
                    f"the shares of {client}'s key are wrong: a client sent a false one. The sum stays hidden."
                )
            for holder in self.share_holders(participants, client):
                if holder in survivors:
                    remove_mask = subtract_mask if holder > client else add_mask
                    remove_mask(total, _pair_key(key, participants, holder))

    def _recover_secret(
        self, participants: SumParticipants, client: ClientId, answers: Mapping[ClientId, RevealedShares]
    ) -> bytes:
        holders = self.share_holders(participants, client)
        shares = {
            k: np.frombuffer(answers[holder][client], np.uint32)
            for k, holder in enumerate(holders)
            if holder in answers and len(answers[holder].get(client, b"")) == SHARE_BYTES
        }
        threshold = self.threshold_count(len(holders))
        if len(shares) < threshold:
            raise RunError(
                f"{len(shares)} of the {len(holders)} holders of {client}'s shares finished and {threshold} are needed; "
                "the sum stays hidden. Raise wait_policy.timeout, or lower secure.threshold (at least 0.5)."
            )
        return recover_secrets(shares, threshold)[0]


def _pair_key(own_key: AgreementKey, participants: SumParticipants, peer: ClientId) -> bytes:
    """Return the key of the mask that two clients share."""
    return own_key.derive_key(participants.public_keys[peer].mask_key, f"mask {participants.digest}")
