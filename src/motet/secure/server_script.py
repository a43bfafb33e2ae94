"""The server's half of a secure sum: the exchanges that replace one sum, and the collectors of their replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from motet.core.errors import PrivacyError, RunError
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Script, find_client_method, to_all
from motet.core.weighted import Weighted
from motet.secure.crypto import KEY_BYTES, Ciphertext, is_ciphertext, is_valid_public_key
from motet.secure.masking import Masking
from motet.secure.participants import PublicKeys, SumParticipants
from motet.secure.sum_encoding import SumEncoding
from motet.secure.sum_messages import MaskedTotal, MaskedVector, ShareRequest, UploadRequest, make_topic
from motet.wire.value_digest import digest_value

if TYPE_CHECKING:
    from motet.secure.protocol import SecureSum

IsValid = Callable[[ClientId, Any], bool]


class ValidReplies:
    """Collects valid replies. An invalid one counts as a failure of that client, and the others continue."""

    def __init__(self, is_valid: IsValid) -> None:
        self.is_valid, self.replies = is_valid, dict[ClientId, Any]()

    def add(self, client: ClientId, reply: Any) -> None:
        if not self.is_valid(client, reply):
            raise RunError(f"{client} sent an invalid message in a secure sum; the client is left out.")
        self.replies[client] = reply

    def value(self) -> dict[ClientId, Any]:
        return self.replies


class MaskedSum:
    """Adds masked vectors in place. A cohort of any size needs only this one buffer."""

    def __init__(self, masking: Masking, encoding: SumEncoding, address: str) -> None:
        self.masking, self.encoding, self.address = masking, encoding, address
        self.clients: list[ClientId] = []
        self.first: MaskedVector | None = None
        self.total = np.zeros(0, np.uint32)

    def add(self, client: ClientId, reply: Any) -> None:
        if not isinstance(reply, MaskedVector):
            raise RunError(f"{client} sent a {type(reply).__name__}; expected a masked vector. The client is left out.")
        count = self.encoding.word_count(reply.layout.size, reply.is_double, self.address)
        if reply.words.dtype != torch.int32 or reply.words.shape != (count,):
            raise RunError(
                f"the masked vector of {client} does not have {count} words of 32 bits, as its layout needs; "
                "the client is left out."
            )
        words = reply.words.numpy().view(np.uint32)
        if self.first is None:
            self.first, self.total = reply, np.zeros_like(words)
        if (reply.layout, reply.is_double) != (self.first.layout, self.first.is_double):
            raise RunError(
                f"the masked vector of {client} has another layout than the others; use the same model and layers everywhere."
            )
        self.masking.add_upload(self.total, words)
        self.clients.append(client)

    def value(self) -> MaskedTotal:
        if self.first is None:
            raise RunError("no client uploaded a vector; there is nothing to sum.")
        words = torch.from_numpy(self.total.view(np.int32))
        return MaskedTotal(tuple(self.clients), self.first.layout, self.first.is_double, words)


def run_secure_sum(protocol: SecureSum, exchange: Exchange) -> Script[Weighted]:
    """Run the five stages and return the mean."""
    masking, clients = protocol.masking, exchange.payloads.keys()
    payload = _common_payload(protocol, exchange)
    topic = make_topic(exchange.address, protocol.down_codecs.decode(payload))
    trains_first = masking.shares_need_vector
    exchange.on_start()
    public_keys: dict[ClientId, PublicKeys] = yield _gather_valid(
        protocol.advertise, to_all(clients, topic), lambda _, reply: are_valid_keys(reply)
    )
    _require_clients(protocol, len(public_keys), "sent keys")
    participants = SumParticipants(0, topic, public_keys)
    share_requests = {c: ShareRequest(public_keys, payload if trains_first else None) for c in public_keys}
    shares_by_sender: dict[ClientId, dict[ClientId, Ciphertext]] = yield _gather_valid(
        protocol.share, share_requests, partial(_has_all_shares, masking, participants)
    )
    _require_clients(protocol, len(shares_by_sender), "sent shares")
    sharing_clients = tuple(shares_by_sender)
    upload_requests = _forward_shares(shares_by_sender, None if trains_first else payload)
    del shares_by_sender  # LightSecAgg's shares are larger than all vectors together
    collector = partial(MaskedSum, masking, protocol.encoding, exchange.address)
    total: MaskedTotal = yield Exchange(find_client_method(protocol.upload).address, upload_requests, "each", collector)
    del upload_requests
    survivors = total.clients
    _require_clients(protocol, len(survivors), "uploaded a vector")
    signatures = yield _gather_valid(
        protocol.confirm, to_all(survivors, survivors), lambda _, reply: isinstance(reply, bytes)
    )
    is_valid_answer = partial(masking.is_valid_answer, len(public_keys), total.words.numel())
    answers = yield _gather_valid(
        protocol.reveal, to_all(signatures, signatures), lambda _, reply: is_valid_answer(reply)
    )
    words = total.words.numpy().view(np.uint32).copy()
    masking.unmask_sum(words, participants, sharing_clients, set(survivors), answers)
    return protocol.encoding.decode(words, total, exchange.address, len(public_keys), masking)


def _forward_shares(
    shares_by_sender: Mapping[ClientId, Mapping[ClientId, Ciphertext]], payload: Any
) -> dict[ClientId, UploadRequest]:
    """Return the requests that bring each client the shares of all others for it."""
    return {
        receiver: UploadRequest(
            {sender: shares[receiver] for sender, shares in shares_by_sender.items() if receiver in shares}, payload
        )
        for receiver in shares_by_sender
    }


def _common_payload(protocol: SecureSum, exchange: Exchange) -> Any:
    """Return the payload of all clients, encoded once: random rounding must not make it differ between clients."""
    payloads = {id(payload): payload for payload in exchange.payloads.values()}
    digests = {digest_value(payload) for payload in payloads.values()}
    if len(digests) != 1:
        raise PrivacyError(
            f"{exchange.address} has {len(digests)} payloads for {len(exchange.payloads)} clients; in a secure sum all "
            "clients must get the same, so that nobody's reply stands out. Set secure.type=none."
        )
    payload = next(iter(payloads.values()))
    return protocol.down_codecs.encode(payload, Seed(0).derive("secure", *digests))


def are_valid_keys(reply: Any) -> bool:
    """Check that other clients can use these keys. A single invalid one would stop all of them."""
    return (
        isinstance(reply, PublicKeys)
        and is_valid_public_key(reply.encryption_key)
        and is_valid_public_key(reply.mask_key)
        and len(reply.signing_key) == KEY_BYTES
    )


def _has_all_shares(masking: Masking, participants: SumParticipants, client: ClientId, shares: Any) -> bool:
    """Check that there is a share for each share holder. A client that leaves one out would stop all others."""
    holders = {*masking.share_holders(participants, client)} - {client}
    return isinstance(shares, dict) and shares.keys() == holders and all(map(is_ciphertext, shares.values()))


def _gather_valid(method: Callable[..., Any], payloads: Mapping[ClientId, Any], is_valid: IsValid) -> Exchange:
    return Exchange(find_client_method(method).address, payloads, "each", partial(ValidReplies, is_valid))


def _require_clients(protocol: SecureSum, count: int, action: str) -> None:
    minimum = protocol.policy.min_clients
    if count < minimum:
        raise RunError(f"{count} clients {action}, and a secure sum needs at least {minimum}; nothing is revealed.")
