"""The checks that protect a client in a secure sum, whatever the server says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice

from motet.core.errors import PrivacyError
from motet.core.script import ClientId
from motet.secure.client_session import ClientSession
from motet.secure.crypto import verify_signature
from motet.secure.participants import SumParticipants


@dataclass(frozen=True)
class ClientPolicy:
    """A client's requirements. It takes part only in sums over at least `min_clients` clients."""

    min_clients: int = 3

    def check_participants(
        self, participants: SumParticipants, session: ClientSession, known_identities: Mapping[ClientId, bytes] | None
    ) -> None:
        """Check the number of clients, that their keys differ, this client's own keys, and all identities."""
        public_keys = participants.public_keys
        if len(public_keys) < self.min_clients:
            raise PrivacyError(
                f"the sum has {len(public_keys)} clients, and this client takes part in sums of at least "
                f"{self.min_clients}; use a larger cohort.size."
            )
        if public_keys.get(session.client) != session.public_keys:
            raise PrivacyError(
                "this client's own keys are missing or changed in the list of keys; the sum is rejected."
            )
        for name in ("encryption_key", "mask_key", "signing_key"):
            if len({getattr(keys, name) for keys in public_keys.values()}) < len(public_keys):
                raise PrivacyError(
                    f"two clients have the same {name.replace('_', ' ')}, so one of them is not real; the sum is rejected."
                )
        if known_identities is None:
            return  # a signature by an unknown key proves nothing
        for client, keys in public_keys.items():
            if known_identities[client] != keys.signing_key:
                raise PrivacyError(f"the identity of {client} is not the one on file; the sum is rejected.")
            if not verify_signature(keys.signing_key, participants.key_statement(client), keys.signature):
                raise PrivacyError(f"the keys of {client} are not signed by it for this sum; the sum is rejected.")

    def check_shares(self, owners: Collection[ClientId], holders: Collection[ClientId], threshold: int) -> None:
        """Check that shares come only from clients that this client holds shares for, and from enough of them."""
        if strangers := set(owners) - set(holders):
            raise PrivacyError(
                f"received shares from {', '.join(sorted(strangers)[:3])}, with whom this client exchanges none; "
                "they are rejected."
            )
        if len(owners) < threshold:
            raise PrivacyError(
                f"received shares of {len(owners)} clients, and {threshold} are needed before anything is uploaded."
            )

    def check_survivors(
        self, survivors: tuple[ClientId, ...], session: ClientSession, holders: tuple[ClientId, ...], threshold: int
    ) -> None:
        """Check that the list of survivors is possible, and long enough to hide this client."""
        unique = set(survivors)
        participants = set(session.participants.clients)
        if len(unique) < len(survivors) or session.client not in unique or not unique <= participants:
            raise PrivacyError(
                "the list of survivors repeats a client, names a stranger, or lacks this client; it is rejected."
            )
        neighbors = unique & set(holders)
        if unknown := neighbors - set(session.held_shares):
            raise PrivacyError(
                f"{', '.join(sorted(unknown)[:3])} never sent shares and cannot have survived; the list is rejected."
            )
        if len(unique) < self.min_clients or len(neighbors) < threshold:
            raise PrivacyError(
                f"the sum would have {len(unique)} survivors, {len(neighbors)} of them neighbors of this client; "
                f"{max(self.min_clients, threshold)} are needed. The sum stays hidden."
            )

    def check_predecessor(self, survivors: tuple[ClientId, ...], earlier: tuple[ClientId, ...] | None) -> None:
        """Check that all survivors were also in the earlier sum that this one builds on, if this client remembers it."""
        if earlier is not None and (strangers := set(survivors) - set(earlier)):
            raise PrivacyError(
                f"{', '.join(sorted(strangers)[:3])} did not take part in the earlier sum of this round that this one "
                "builds on; the sum stays hidden."
            )

    def check_signatures(
        self,
        signatures: Mapping[ClientId, bytes],
        session: ClientSession,
        holders: tuple[ClientId, ...],
        threshold: int,
    ) -> None:
        """Check that enough share holders signed the same list of survivors as this client."""
        statement = session.participants.survivor_statement(session.survivors)
        keys = session.participants.public_keys
        valid = (
            client
            for client in holders
            if client in signatures and verify_signature(keys[client].signing_key, statement, signatures[client])
        )
        count = len(list(islice(valid, threshold)))
        if count < threshold:
            raise PrivacyError(
                f"{count} clients have signed the list of survivors that this client got, and {threshold} are needed: the "
                "others got another list, or were lost. The sum stays hidden."
            )
