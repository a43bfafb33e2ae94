"""Who takes part in one secure sum, as every one of them must see it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from motet.core.messages import message
from motet.core.script import ClientId


@message
@dataclass(frozen=True)
class PublicKeys:
    """A client's public keys for one sum: to send it shares, to agree on masks, to check what it signs."""

    box: bytes
    mask: bytes
    signer: bytes
    signature: bytes  # of the keys above, with round, address and name


@dataclass(frozen=True, eq=False)
class SumParticipants:
    """The sum's round and work, and the keys of all who announced themselves for it."""

    round: int
    address: str
    hellos: Mapping[ClientId, PublicKeys]

    @cached_property
    def members(self) -> tuple[ClientId, ...]:
        return tuple(sorted(self.hellos))

    @cached_property
    def places(self) -> dict[ClientId, int]:
        return {client: k for k, client in enumerate(self.members)}

    @cached_property
    def digest(self) -> str:
        """Differs if two clients were told of different peers, keys or works. (Keys are new for every sum.)"""
        keys = [[c, *(getattr(self.hellos[c], k).hex() for k in ("box", "mask", "signer"))] for c in self.members]
        return hashlib.sha256(json.dumps([self.address, keys]).encode()).hexdigest()

    @cached_property
    def seats(self) -> dict[ClientId, int]:
        """Members in the order of a hash of themselves and everybody's keys: an order that nobody chose."""
        order = sorted(self.members, key=lambda c: hashlib.sha256(f"{self.digest} {c}".encode()).digest())
        return {client: seat for seat, client in enumerate(order)}

    def key_statement(self, client: ClientId) -> bytes:
        """What a client signed of its keys."""
        return key_statement(self.round, self.address, client, self.hellos[client].box, self.hellos[client].mask)

    def statement(self, survivors: Sequence[ClientId]) -> bytes:
        """What survivors sign: that the sum of exactly these clients, and of no others, is to be opened."""
        return json.dumps(["motet survivors", self.digest, sorted(survivors)]).encode()


def key_statement(round: int, address: str, client: ClientId, box: bytes, mask: bytes) -> bytes:
    """What a client signs of its keys."""
    return json.dumps(["motet keys", round, address, client, box.hex(), mask.hex()]).encode()
