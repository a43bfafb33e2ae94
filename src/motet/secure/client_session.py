"""A client's side of one sum: its secrets, how far it has gone, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from motet.core.errors import PrivacyError
from motet.core.params import Layout
from motet.core.script import ClientId
from motet.secure.crypto import AgreementKey, Ciphertext, SigningKey, decrypt_blocks, verify_signature
from motet.secure.participants import PublicKeys, SumParticipants

STAGES = ("advertise", "share", "upload", "confirm", "reveal")


@dataclass
class EncodedVector:
    """What a client adds to the sum, before and after it is masked."""

    layout: Layout
    double: bool
    words: np.ndarray


class SumSecrets(NamedTuple):
    """What a client draws for one sum: keys for shares and for masks, the seed of its own mask, its signing key."""

    box: AgreementKey
    key: AgreementKey
    seed: bytes
    signer: SigningKey


class SealedShare(NamedTuple):
    """A share that lies here, still sealed: LightSecAgg's are as long as the vector, and in a simulation the box is the very
    one that the server passed on, so that all shares of all clients are in memory once."""

    box: Ciphertext
    key: bytes


@dataclass
class ClientSession:
    """Changed in place, unlike other memories: a stage counts as done when it begins, so that two requests at once cannot
    both pass, and one that fails cannot be tried again under the same masks. It never leaves the client's main memory.
    """

    client: ClientId
    round: int
    address: str
    hello: PublicKeys
    secrets: SumSecrets | None
    stage: str = "advertise"
    circle: SumParticipants = SumParticipants(0, "", {})
    held: dict[ClientId, SealedShare] = field(default_factory=dict)  # whose → the share of its secrets that lies here
    vector: EncodedVector | None = None
    survivors: tuple[ClientId, ...] = ()

    def enter(self, stage: str, round: int) -> SumSecrets:
        """Begin a stage: the one after the last, once, in the round the sum was begun in."""
        after = STAGES[STAGES.index(stage) - 1]
        if self.stage != after or self.round != round or self.secrets is None:
            raise PrivacyError(
                f"'{stage}' was asked for in round {round}, but this client stands after '{self.stage}' of a sum of round "
                f"{self.round}; every stage comes once and in order. Begin a new sum."
            )
        self.stage = stage
        return self.secrets

    def still(self, secrets: SumSecrets) -> None:
        """While it worked, a server may have begun another sum with this client; the peers to mask with are then forgotten."""
        if self.secrets is not secrets:
            raise PrivacyError(
                "another sum was begun while this client worked for this one; nothing is uploaded to it."
            )

    def share_of(self, client: ClientId) -> Iterator[memoryview]:
        """Open the share that this client holds of another's secrets, in blocks, or refuse what that one did not write."""
        box, key = self.held[client]
        return decrypt_blocks(key, box, self.circle.digest.encode(), client)

    def close(self) -> None:
        """Forget all secrets."""
        self.secrets = self.vector = None
        self.held.clear()


@dataclass(frozen=True)
class ClientPolicy:
    """What a client insists on, whatever the server says."""

    minimum: int = 3

    def circle(self, circle: SumParticipants, session: ClientSession, known: Mapping[ClientId, bytes] | None) -> None:
        """Enough clients, each with keys of its own, this one's among them, and each who it says it is."""
        hellos = circle.hellos
        if len(hellos) < self.minimum:
            raise PrivacyError(
                f"a sum over {len(hellos)} clients was asked for, and this client takes part in sums of at least "
                f"{self.minimum}; ask more clients at a time."
            )
        if hellos.get(session.client) != session.hello:
            raise PrivacyError(
                "this client's own keys are not among those it was shown; somebody changed them. It stops here."
            )
        for kind in ("box", "mask", "signer"):
            if len({getattr(h, kind) for h in hellos.values()}) < len(hellos):
                raise PrivacyError(
                    f"two clients were shown with the same {kind} key; one of them is not real. It stops here."
                )
        if known is None:
            return  # a signature by an unknown key proves nothing
        for client, hello in hellos.items():
            if known[client] != hello.signer:
                raise PrivacyError(f"{client} was shown with an identity that is not the one on file; it is refused.")
            if not verify_signature(hello.signer, circle.key_statement(client), hello.signature):
                raise PrivacyError(f"the keys shown as {client}'s are not signed by it for this sum; they are refused.")

    def mail(self, held: Collection[ClientId], holders: Collection[ClientId], needed: int) -> None:
        if strangers := set(held) - set(holders):
            raise PrivacyError(
                f"shares came from {', '.join(sorted(strangers)[:3])}, whose shares do not lie here; refused."
            )
        if len(held) < needed:
            raise PrivacyError(
                f"shares of {len(held)} clients came and {needed} are needed before anything is uploaded."
            )

    def survivors(
        self, names: tuple[ClientId, ...], session: ClientSession, holders: tuple[ClientId, ...], needed: int
    ) -> None:
        alive = set(names)
        if len(alive) < len(names) or session.client not in alive or not alive <= set(session.circle.members):
            raise PrivacyError(
                "the list of survivors names somebody twice, or a stranger, or leaves this client out; refused."
            )
        if unknown := (alive & set(holders)) - set(session.held):
            raise PrivacyError(f"{', '.join(sorted(unknown)[:3])} never sent shares and cannot have survived; refused.")
        if len(alive) < self.minimum or len(alive & set(holders)) < needed:
            raise PrivacyError(
                f"a sum over {len(alive)} survivors was to be opened, {len(alive & set(holders))} of them near this client; "
                f"{max(self.minimum, needed)} are needed. It stays closed."
            )

    def signatures(
        self, found: Mapping[ClientId, bytes], session: ClientSession, holders: tuple[ClientId, ...], needed: int
    ) -> None:
        text = session.circle.statement(session.survivors)
        sound = (c for c in holders if c in found and verify_signature(session.circle.hellos[c].signer, text, found[c]))
        agreeing = len(list(islice(sound, needed)))
        if agreeing < needed:
            raise PrivacyError(
                f"{agreeing} clients have signed the list of survivors that this client was shown and {needed} are needed: "
                "others were told of another list, or were lost. The sum stays closed."
            )
