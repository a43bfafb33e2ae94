"""LightSecAgg (So et al. 2022): the server recovers the sum of the masks in one step, however many clients were lost.

Client i cuts its mask z_i into U − T pieces, adds T random ones, and gives client j the value at j of the polynomial through
all U pieces (at n+1 … n+U). Each of U survivors adds up the shares of those in the sum; interpolation of these aggregates at
n+1 … n+U−T gives Σ z_i. Any T shares say nothing of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from motet.core.errors import ConfigError, RunError
from motet.core.script import ClientId
from motet.core.threads import single_thread
from motet.secure.crypto import KEY_BYTES, AgreementKey, BytesLike, RandomBytes
from motet.secure.masks import FieldMask, add_field_mask
from motet.secure.participants import SumParticipants
from motet.secure.prime_field import BLOCK_COLUMNS, FIELD, BlockMultiplier, Elements, PrimeField

_UNLIKE = "shares of different lengths came, so the clients' vectors differ in size; use one model for all."


@dataclass(frozen=True)
class CodedMasking:
    """`privacy`: the share of clients that may collude with the server (T). `threshold`: the share that must finish (U)."""

    privacy: float
    threshold: float
    modulus: int = FIELD.prime
    early: bool = True  # a share is a piece of the mask, so the size of the vector must be known

    def __post_init__(self) -> None:
        if not 0 < self.privacy < self.threshold < 1:
            raise ConfigError(
                f"secure.privacy is {self.privacy:g} and secure.threshold {self.threshold:g}; both are shares of the clients, "
                "and more must finish than may collude: 0 < privacy < threshold < 1."
            )
        if self.threshold < 0.5:
            raise ConfigError(
                f"secure.threshold is {self.threshold:g}; below 0.5 a server could open two sums of one round."
            )

    def colluders(self, clients: int) -> int:
        return max(1, math.floor(self.privacy * clients + 1e-9))

    def threshold_count(self, clients: int) -> int:
        half = clients // 2 + 1
        return min(clients, max(self.colluders(clients) + 1, half, math.floor(self.threshold * clients + 1e-9)))

    def fewest(self, clients: int) -> int:
        return self.threshold_count(clients)

    def holders(self, circle: SumParticipants, client: ClientId) -> tuple[ClientId, ...]:
        return circle.members

    def holds_together(self, circle: SumParticipants, survivors: Collection[ClientId]) -> bool:
        return True

    def _pieces(self, clients: int, size: int) -> tuple[int, int]:
        """How many pieces a mask is cut into, and how long each is."""
        count = self.threshold_count(clients) - self.colluders(clients)
        return count, -(-size // count)

    def shares(
        self, seed: bytes, key: AgreementKey, circle: SumParticipants, me: ClientId, size: int, draw: RandomBytes
    ) -> dict[ClientId, BytesLike]:
        clients = len(circle.members)
        count, length = self._pieces(clients, size)
        masks = [FieldMask(seed, k * length) for k in range(count)]
        masks += [FieldMask(draw(KEY_BYTES)) for _ in range(self.colluders(clients))]
        coded = encode_shares(FIELD, [mask.into for mask in masks], length, clients)
        return {member: share.data.cast("B") for member, share in zip(circle.members, coded, strict=True)}

    def mask(
        self,
        words: np.ndarray,
        seed: bytes,
        key: AgreementKey,
        circle: SumParticipants,
        me: ClientId,
        peers: Collection[ClientId],
    ) -> None:
        add_field_mask(words, seed)

    def add(self, total: np.ndarray, words: np.ndarray) -> None:
        if words.size and int(words.max()) >= self.modulus:
            raise RunError(
                "a masked upload holds words that are no elements of the field; the client speaks another protocol."
            )
        FIELD.add(total, words)

    def opens(self, clients: int, size: int, answer: Any) -> bool:
        _, length = self._pieces(clients, size)
        return isinstance(answer, torch.Tensor) and answer.dtype == torch.int32 and answer.shape == (length,)

    def answer(
        self,
        held: Collection[ClientId],
        share_of: Callable[[ClientId], Iterable[memoryview]],
        survivors: Collection[ClientId],
    ) -> torch.Tensor:
        first, *rest = survivors
        summed = bytearray()
        for block in share_of(first):
            summed += block
        total = _elements(summed)
        for survivor in rest:
            at = 0
            for block in share_of(survivor):  # no share is ever open as a whole
                share = _elements(block)
                at += share.size
                if at <= total.size:
                    FIELD.add(total[at - share.size : at], share)
            if at != total.size:
                raise RunError(_UNLIKE)
        return torch.from_numpy(total.view(np.int32))

    def unmask(
        self,
        total: np.ndarray,
        circle: SumParticipants,
        shared: Sequence[ClientId],
        alive: Collection[ClientId],
        answers: Mapping[ClientId, torch.Tensor],
    ) -> None:
        clients = len(circle.members)
        enough = self.threshold_count(clients)
        if len(answers) < enough:
            raise RunError(
                f"{len(answers)} of {clients} clients stayed to the end and {enough} are needed; the sum stays hidden. Raise "
                f"wait_policy.timeout, or lower secure.threshold ({self.threshold:g})."
            )
        count, _ = self._pieces(clients, total.size)
        used = sorted(answers, key=circle.places.__getitem__)[:enough]
        coded = {circle.places[c]: answers[c].numpy().view(np.uint32) for c in used}
        FIELD.subtract(total, recover_pieces(FIELD, coded, clients, count)[: total.size])


def _elements(buffer: bytearray | memoryview) -> Elements:
    if len(buffer) % 4:
        raise RunError(_UNLIKE)
    return np.frombuffer(buffer, np.uint32)


def encode_shares(
    field: PrimeField, pieces: Sequence[Callable[[Elements], None]], length: int, clients: int
) -> list[Elements]:
    """Every client's share. A piece is called for its next elements, so that none of them is ever there as a whole."""
    coded = [np.empty(length, np.uint32) for _ in range(clients)]
    code, some = (
        BlockMultiplier(field, encoding_matrix(field, len(pieces), clients), length),
        np.empty((len(pieces), BLOCK_COLUMNS), np.uint32),
    )
    with single_thread():
        for at in range(0, length, BLOCK_COLUMNS):
            columns = slice(at, min(length, at + BLOCK_COLUMNS))
            part = some[:, : columns.stop - at]
            for piece, row in zip(pieces, part, strict=True):
                piece(row)
            code(part, [share[columns] for share in coded])
    return coded


def encoding_matrix(field: PrimeField, pieces: int, clients: int) -> Elements:
    """The matrix that takes the pieces, at n+1 … n+U, to the value at 1 … n of the polynomial through them."""
    return field.interpolation(range(clients + 1, clients + 1 + pieces), range(1, clients + 1))


def recover_pieces(field: PrimeField, answers: Mapping[int, Elements], clients: int, count: int) -> Elements:
    """The first `count` pieces, one after another, from the aggregates of U clients by their places."""
    known = [place + 1 for place in answers]
    matrix = field.interpolation(known, range(clients + 1, clients + 1 + count))
    return field.product(matrix, list(answers.values())).reshape(-1)
