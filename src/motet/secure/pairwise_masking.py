"""SecAgg (Bonawitz et al. 2017) and SecAgg+ (Bell et al. 2020): masks that two clients agree on cancel in the sum.

    y_u = x_u + PRG(b_u) + Σ_{v<u} PRG(s_uv) − Σ_{v>u} PRG(s_uv)   mod 2³²                        (Bonawitz et al., section 4)

The seed b_u and the key behind all s_uv are shared among u's holders. Of a client whose upload is in the sum they give shares
of the seed, of one that was lost shares of the key: never both, or its upload could be read. SecAgg+ is the same on a sparse
graph of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, RunError
from motet.core.script import ClientId
from motet.secure.crypto import AgreementKey, BytesLike, RandomBytes
from motet.secure.mask_graph import CompleteGraph, RingGraph, is_connected, threshold_count
from motet.secure.masks import add_mask, subtract_mask
from motet.secure.participants import SumParticipants
from motet.secure.shamir import LIMBS, recover_secrets, split_secrets

SecretShares = dict[ClientId, bytes]  # whose secret → this holder's share of it


@dataclass(frozen=True)
class PairwiseMasking:
    threshold: float
    graph: CompleteGraph | RingGraph
    modulus: int = 2**32
    early: bool = False  # shares do not depend on the size of the vector

    def __post_init__(self) -> None:
        if not 0.5 <= self.threshold < 1:
            raise ConfigError(
                f"secure.threshold is {self.threshold:g}; it is the share of clients of which more must finish: at least 0.5, "
                "or a server could open two sums of one round, and below 1."
            )

    def holders(self, circle: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        return self.graph.holders(circle, client)

    def threshold_count(self, holders: int) -> int:
        return threshold_count(holders, self.threshold)

    def fewest(self, clients: int) -> int:
        return self.graph.fewest(clients, self.threshold)

    def holds_together(self, circle: SumParticipants, survivors: Collection[ClientId]) -> bool:
        return is_connected(self.graph, circle, survivors)

    def shares(
        self, seed: bytes, key: AgreementKey, circle: SumParticipants, me: ClientId, size: int, draw: RandomBytes
    ) -> dict[ClientId, BytesLike]:
        holders = self.holders(circle, me)
        values = split_secrets([seed, key.secret], len(holders), self.threshold_count(len(holders)), draw)
        return {holder: values[k].tobytes() for k, holder in enumerate(holders)}

    def mask(
        self,
        words: np.ndarray,
        seed: bytes,
        key: AgreementKey,
        circle: SumParticipants,
        me: ClientId,
        peers: Collection[ClientId],
    ) -> None:
        add_mask(words, seed)
        for peer in peers:
            if peer != me:
                pad = add_mask if me > peer else subtract_mask
                pad(words, key.agreed(circle.hellos[peer].mask, f"mask {circle.digest}"))

    def add(self, total: np.ndarray, words: np.ndarray) -> None:
        np.add(total, words, out=total)

    def opens(self, clients: int, size: int, answer: Any) -> bool:
        return isinstance(answer, dict) and all(isinstance(share, bytes) for share in answer.values())

    def answer(
        self,
        held: Collection[ClientId],
        share_of: Callable[[ClientId], Iterable[memoryview]],
        survivors: Collection[ClientId],
    ) -> SecretShares:
        of_seed, of_key = slice(4 * LIMBS), slice(4 * LIMBS, None)
        return {v: b"".join(map(bytes, share_of(v)))[of_seed if v in survivors else of_key] for v in held}

    def unmask(
        self,
        total: np.ndarray,
        circle: SumParticipants,
        shared: Sequence[ClientId],
        alive: Collection[ClientId],
        answers: Mapping[ClientId, SecretShares],
    ) -> None:
        """Remove the own masks of those in the sum, and what those who were lost would have cancelled."""
        secrets = {v: self._secret(circle, v, answers) for v in shared}
        for v in shared:
            if v in alive:
                subtract_mask(total, secrets[v])
                continue
            key = AgreementKey(secrets[v])
            if key.public != circle.hellos[v].mask:
                raise RunError(
                    f"the shares of {v}'s key do not give that key: a client sent a wrong one. The sum stays hidden."
                )
            for u in self.holders(circle, v):
                if u in alive:
                    pad = subtract_mask if u > v else add_mask
                    pad(total, key.agreed(circle.hellos[u].mask, f"mask {circle.digest}"))

    def _secret(self, circle: SumParticipants, client: ClientId, answers: Mapping[ClientId, SecretShares]) -> bytes:
        holders = self.holders(circle, client)
        shares = {
            k: np.frombuffer(answers[h][client], np.uint32)
            for k, h in enumerate(holders)
            if h in answers and len(answers[h].get(client, b"")) == 4 * LIMBS
        }
        enough = self.threshold_count(len(holders))
        if len(shares) < enough:
            raise RunError(
                f"{len(shares)} of the {len(holders)} holders of {client}'s shares stayed to the end and {enough} are needed; "
                "the sum stays hidden. Raise wait_policy.timeout, or lower secure.threshold (at least 0.5)."
            )
        return recover_secrets(shares, enough)[0]
