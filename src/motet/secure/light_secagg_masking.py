"""LightSecAgg (So et al. 2022): the server recovers the sum of the masks in one step, however many clients were lost.

Client i splits its mask z_i into U − T pieces and adds T random pieces. Client j gets the value at j of the polynomial
through all U pieces (at n+1 … n+U). Each of U survivors adds up the shares of the clients in the sum. Interpolating
these totals at n+1 … n+U−T gives Σ z_i. Any T shares reveal nothing about a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from motet.core.errors import ConfigError, RunError
from motet.core.script import ClientId
from motet.core.threads import single_thread
from motet.secure.crypto import KEY_BYTES, AgreementKey, BytesLike, RandomBytes
from motet.secure.masking import OpenShare
from motet.secure.masks import FieldMask, add_field_mask
from motet.secure.participants import SumParticipants
from motet.secure.prime_field import BLOCK_COLUMNS, FIELD, BlockMultiplier, Elements, PrimeField

_DIFFERENT_LENGTHS = "the shares have different lengths, so the clients' vectors differ in size; use one model for all."


@dataclass(frozen=True)
class LightSecAggMasking:
    """`colluder_share` of the clients may collude with the server (T); the share `threshold` must finish (U)."""

    colluder_share: float
    threshold: float
    modulus: int = FIELD.prime
    shares_need_vector: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.colluder_share < self.threshold < 1:
            raise ConfigError(
                f"secure.colluders is {self.colluder_share:g} and secure.threshold {self.threshold:g}; both are shares of "
                "the clients, and more must finish than may collude: 0 < colluders < threshold < 1."
            )
        if self.threshold < 0.5:
            raise ConfigError(
                f"secure.threshold is {self.threshold:g}; below 0.5 a server could open two sums of one round."
            )

    def colluder_count(self, clients: int) -> int:
        return max(1, math.floor(self.colluder_share * clients + 1e-9))

    def threshold_count(self, clients: int) -> int:
        majority, minimum = clients // 2 + 1, math.floor(self.threshold * clients + 1e-9)
        return min(clients, max(self.colluder_count(clients) + 1, majority, minimum))

    def min_survivors(self, clients: int) -> int:
        return self.threshold_count(clients)

    def share_holders(self, participants: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        return participants.clients

    def is_connected(self, participants: SumParticipants, survivors: Collection[ClientId]) -> bool:
        return True

    def make_shares(
        self,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        vector_size: int,
        random_bytes: RandomBytes,
    ) -> dict[ClientId, BytesLike]:
        clients = len(participants.clients)
        count, length = self._mask_pieces(clients, vector_size)
        pieces = [FieldMask(mask_seed, k * length) for k in range(count)]
        pieces += [FieldMask(random_bytes(KEY_BYTES)) for _ in range(self.colluder_count(clients))]
        shares = encode_shares(FIELD, [piece.fill for piece in pieces], length, clients)
        return {holder: share.data.cast("B") for holder, share in zip(participants.clients, shares, strict=True)}

    def mask_vector(
        self,
        words: np.ndarray,
        mask_seed: bytes,
        mask_key: AgreementKey,
        participants: SumParticipants,
        client: ClientId,
        peers: Collection[ClientId],
    ) -> None:
        add_field_mask(words, mask_seed)

    def add_upload(self, total: np.ndarray, words: np.ndarray) -> None:
        if words.size and int(words.max()) >= self.modulus:
            raise RunError("a masked upload contains words that are not field elements; the client is not compatible.")
        FIELD.add(total, words)

    def is_valid_answer(self, clients: int, vector_size: int, answer: Any) -> bool:
        _, length = self._mask_pieces(clients, vector_size)
        return isinstance(answer, torch.Tensor) and answer.dtype == torch.int32 and answer.shape == (length,)

    def make_answer(
        self, held_shares: Collection[ClientId], open_share: OpenShare, survivors: Collection[ClientId]
    ) -> torch.Tensor:
        """Add up the survivors' shares, block by block, so that only the total is in memory as a whole."""
        first, *others = survivors
        buffer = bytearray()
        for block in open_share(first):
            buffer += block
        total = _to_elements(buffer)
        for survivor in others:
            end = 0
            for block in open_share(survivor):
                elements = _to_elements(block)
                end += elements.size
                if end <= total.size:
                    FIELD.add(total[end - elements.size : end], elements)
            if end != total.size:
                raise RunError(_DIFFERENT_LENGTHS)
        return torch.from_numpy(total.view(np.int32))

    def unmask_sum(
        self,
        total: np.ndarray,
        participants: SumParticipants,
        sharing_clients: Sequence[ClientId],
        survivors: Collection[ClientId],
        answers: Mapping[ClientId, torch.Tensor],
    ) -> None:
        clients = len(participants.clients)
        threshold = self.threshold_count(clients)
        if len(answers) < threshold:
            raise RunError(
                f"{len(answers)} of {clients} clients finished and {threshold} are needed; the sum stays hidden. Raise "
                f"wait_policy.timeout, or lower secure.threshold ({self.threshold:g})."
            )
        count, _ = self._mask_pieces(clients, total.size)
        positions = participants.positions
        used = sorted(answers, key=positions.__getitem__)[:threshold]
        totals = {positions[client]: answers[client].numpy().view(np.uint32) for client in used}
        FIELD.subtract(total, recover_pieces(FIELD, totals, clients, count)[: total.size])

    def _mask_pieces(self, clients: int, vector_size: int) -> tuple[int, int]:
        """Return the number and the length of the pieces of a mask."""
        count = self.threshold_count(clients) - self.colluder_count(clients)
        return count, -(-vector_size // count)


def _to_elements(buffer: bytearray | memoryview) -> Elements:
    if len(buffer) % 4:
        raise RunError(_DIFFERENT_LENGTHS)
    return np.frombuffer(buffer, np.uint32)


def encode_shares(
    field: PrimeField, fill_pieces: Sequence[Callable[[Elements], None]], length: int, clients: int
) -> list[Elements]:
    """Return every client's share. Each function fills an array with the next elements of its piece, so that no piece is
    ever in memory as a whole."""
    shares = [np.empty(length, np.uint32) for _ in range(clients)]
    multiply = BlockMultiplier(field, encoding_matrix(field, len(fill_pieces), clients), length)
    buffer = np.empty((len(fill_pieces), BLOCK_COLUMNS), np.uint32)
    with single_thread():
        for start in range(0, length, BLOCK_COLUMNS):
            columns = slice(start, min(length, start + BLOCK_COLUMNS))
            block = buffer[:, : columns.stop - start]
            for fill_piece, row in zip(fill_pieces, block, strict=True):
                fill_piece(row)
            multiply(block, [share[columns] for share in shares])
    return shares


def encoding_matrix(field: PrimeField, pieces: int, clients: int) -> Elements:
    """Return the matrix from the pieces, at n+1 … n+U, to the values of the polynomial at 1 … n."""
    return field.interpolation(range(clients + 1, clients + 1 + pieces), range(1, clients + 1))


def recover_pieces(field: PrimeField, totals: Mapping[int, Elements], clients: int, count: int) -> Elements:
    """Return the first `count` pieces, concatenated, from the totals of U clients by position."""
    known_points = [position + 1 for position in totals]
    matrix = field.interpolation(known_points, range(clients + 1, clients + 1 + count))
    return field.product(matrix, list(totals.values())).reshape(-1)
