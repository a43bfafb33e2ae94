"""The participants of one secure sum and their public keys, as every participant must see them."""

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
    """A client's public keys for one sum: to send it shares, to agree on masks, and to verify its signatures."""

    encryption_key: bytes
    mask_key: bytes
    signing_key: bytes
    signature: bytes  # of the first two keys, with the round, the topic and the client's name


@dataclass(frozen=True, eq=False)
class SumParticipants:
    """The round and the topic of a sum, and the keys of all clients that announced themselves for it."""

    round: int
    topic: str
    public_keys: Mapping[ClientId, PublicKeys]

    @cached_property
    def clients(self) -> tuple[ClientId, ...]:
        return tuple(sorted(self.public_keys))

    @cached_property
    def positions(self) -> dict[ClientId, int]:
        return {client: k for k, client in enumerate(self.clients)}

    @cached_property
    def digest(self) -> str:
        """A hash of the participants, their keys and the topic.

        Clients that got different ones have different digests.
        """
        keys = []
        for client in self.clients:
            public = self.public_keys[client]
            keys.append([client, public.encryption_key.hex(), public.mask_key.hex(), public.signing_key.hex()])
        return hashlib.sha256(json.dumps([self.topic, keys]).encode()).hexdigest()

    @cached_property
    def ring_positions(self) -> dict[ClientId, int]:
        """The clients, ordered by a hash of their name and all keys, so that nobody can choose the order."""
        order = sorted(self.clients, key=lambda c: hashlib.sha256(f"{self.digest} {c}".encode()).digest())
        return {client: position for position, client in enumerate(order)}

    def key_statement(self, client: ClientId) -> bytes:
        """Return what this client must have signed."""
        public = self.public_keys[client]
        return key_statement(self.round, self.topic, client, public.encryption_key, public.mask_key)

    def survivor_statement(self, survivors: Sequence[ClientId]) -> bytes:
        """Return what survivors sign: that the sum over exactly these clients may be opened."""
        return json.dumps(["motet survivors", self.digest, sorted(survivors)]).encode()


def key_statement(round: int, topic: str, client: ClientId, encryption_key: bytes, mask_key: bytes) -> bytes:
    """Return what a client signs about its keys."""
    return json.dumps(["motet keys", round, topic, client, encryption_key.hex(), mask_key.hex()]).encode()
