"""Secure sums: five stages replace one sum, and the server learns only the sum.

    stage       a client sends                         → the server sends back

    advertise   its public keys                        → the keys of all clients
    share       encrypted shares of its secrets        → the shares for this client
    upload      the reply of its work, masked          → the list of clients in the sum
    confirm     its signature of that list             → all signatures
    reveal      what opens the sum over these clients

The work itself, a method of the algorithm, runs inside `upload`, or inside `share` if the size of the vector must be
known. The server sees keys, encrypted shares, masked words, signatures, and what opens the sum. Clients check
everything they receive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from motet.codecs.chain import CodecChain
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import PrivacyError, SessionLostError
from motet.core.script import ClientId, Exchange, Program, Script, Transaction, work
from motet.core.weighted import Weighted
from motet.core.work import Job, Work
from motet.secure.client_policy import ClientPolicy
from motet.secure.client_session import ClientSession, EncodedVector, SealedShare, SumSecrets
from motet.secure.crypto import KEY_BYTES, AgreementKey, Ciphertext, RandomBytes, encrypt, random_source
from motet.secure.identities import Identities
from motet.secure.masking import Masking
from motet.secure.participants import PublicKeys, SumParticipants, key_statement
from motet.secure.server_script import run_secure_sum
from motet.secure.sum_encoding import SumEncoding
from motet.secure.sum_messages import MaskedVector, ShareRequest, UploadRequest, make_topic, topic_address


@dataclass(frozen=True)
class SecureSum(Program):
    """A secure sum protocol. Its five client methods are the stages of the clients.

    Called with the exchange of a sum, it returns the script that replaces it (see `rewrite_sums`).
    """

    masking: Masking
    encoding: SumEncoding = SumEncoding()
    policy: ClientPolicy = ClientPolicy()
    identities: Identities = Identities()
    seeded: bool = False  # masks from the run's seed, for simulations that must repeat to the byte; not secure
    down_codecs: CodecChain = CodecChain()  # of the payloads
    predecessors: Mapping[str, str] = field(default_factory=dict)  # of methods that follow another one, by address
    name: str = "secure"
    ephemeral: bool = True  # its client state must not reach a disk

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        result: Weighted = yield Transaction(exchange.address, partial(run_secure_sum, self, exchange))
        return result

    def with_privacy(self, noise: Mapping[str, SkellamNoise], max_norms: Mapping[str, float] = {}) -> SecureSum:
        """Return a secure sum that adds this noise inside its integers and enforces these norms, by the method's address."""
        return replace(self, encoding=replace(self.encoding, noise=noise, max_norms=max_norms))

    def check_noise(self, clients: int) -> None:
        """Raise an error if the noise cannot be calibrated for a cohort of this size."""
        for noise in self.encoding.noise.values():
            noise.resolution(clients, self.masking.min_survivors(clients), self.masking.modulus)

    @work(reveals="each")
    def advertise(self, ctx: Any, topic: str, session: ClientSession | None) -> tuple[PublicKeys, ClientSession]:
        """Create new keys for a new sum, and erase the previous one."""
        earlier_sums = {}
        if session is not None:
            session.erase()
            earlier_sums = session.signed_sums if session.round == ctx.round else {}
        _check_type(topic, str)
        random_bytes = self._random_source(ctx, "keys", topic)
        signing_key = self.identities.signing_key(ctx.client, random_bytes)
        encryption_key, mask_key = AgreementKey(random_bytes(KEY_BYTES)), AgreementKey(random_bytes(KEY_BYTES))
        secrets = SumSecrets(encryption_key, mask_key, mask_seed=random_bytes(KEY_BYTES), signing_key=signing_key)
        statement = key_statement(ctx.round, topic, ctx.client, encryption_key.public, mask_key.public)
        public_keys = PublicKeys(
            encryption_key=encryption_key.public,
            mask_key=mask_key.public,
            signing_key=signing_key.public,
            signature=signing_key.sign(statement),
        )
        return public_keys, ClientSession(
            client=ctx.client,
            round=ctx.round,
            topic=topic,
            public_keys=public_keys,
            secrets=secrets,
            signed_sums=dict(earlier_sums),
        )

    @work(reveals="each")
    def share(
        self, ctx: Any, request: ShareRequest, session: ClientSession | None
    ) -> Work[tuple[dict[ClientId, Ciphertext], None]]:
        """Return shares of this client's secrets, each encrypted for its holder."""
        session = _require_session(session)
        secrets = session.begin_stage("share", ctx.round)
        _check_type(request, ShareRequest)
        participants = SumParticipants(session.round, session.topic, request.public_keys)
        session.participants = participants
        known_identities = self.identities.public_keys(participants.clients)
        self.policy.check_participants(participants, session, known_identities)
        vector_size = 0
        if self.masking.shares_need_vector:
            session.vector = yield from self._compute_vector(ctx, session, request.payload)
            session.check_not_replaced(secrets)
            vector_size = session.vector.words.size
        random_bytes = self._random_source(ctx, "shares", session.topic)
        shares = self.masking.make_shares(
            secrets.mask_seed, secrets.mask_key, participants, ctx.client, vector_size, random_bytes
        )
        associated_data, own_key = participants.digest.encode(), random_bytes(KEY_BYTES)
        own_share = encrypt(own_key, shares.pop(ctx.client), associated_data)
        session.held_shares[ctx.client] = SealedShare(own_share, own_key)
        encrypted = dict[ClientId, Ciphertext]()
        for holder in [*shares]:  # pop: free each plaintext as soon as it is encrypted
            key = session.derive_share_key(secrets, sender=ctx.client, receiver=holder)
            encrypted[holder] = encrypt(key, shares.pop(holder), associated_data)
        return encrypted, None

    @work(reveals="each")
    def upload(
        self, ctx: Any, request: UploadRequest, session: ClientSession | None
    ) -> Work[tuple[MaskedVector, None]]:
        """Do the work and return its masked reply."""
        session = _require_session(session)
        secrets = session.begin_stage("upload", ctx.round)
        _check_type(request, UploadRequest)
        participants, client = session.participants, ctx.client
        holders = self.masking.share_holders(participants, client)
        threshold = self.masking.threshold_count(len(holders))
        self.policy.check_shares({*request.shares, client}, holders, threshold)
        for sender in request.shares.keys() - {client}:
            key = session.derive_share_key(secrets, sender=sender, receiver=client)
            session.held_shares[sender] = SealedShare(request.shares[sender], key)
            deque(session.open_share(sender), 0)  # decrypt and discard: reject forged shares before the upload
        vector = session.vector or (yield from self._compute_vector(ctx, session, request.payload))
        session.check_not_replaced(secrets)
        session.vector = None
        self.masking.mask_vector(
            vector.words, secrets.mask_seed, secrets.mask_key, participants, client, session.held_shares
        )
        return MaskedVector(vector.layout, vector.is_double, torch.from_numpy(vector.words.view(np.int32))), None

    @work(reveals="each")
    def confirm(self, ctx: Any, survivors: tuple[ClientId, ...], session: ClientSession | None) -> tuple[bytes, None]:
        """Sign the list of survivors. After this, no other list is accepted."""
        session = _require_session(session)
        secrets = session.begin_stage("confirm", ctx.round)
        _check_type(survivors, tuple)
        participants = session.participants
        holders = self.masking.share_holders(participants, ctx.client)
        self.policy.check_survivors(survivors, session, holders, self.masking.threshold_count(len(holders)))
        if not self.masking.is_connected(participants, survivors):
            raise PrivacyError(
                "the survivors form groups that share no masks, so the server would learn more than one sum."
            )
        self._check_noise_suffices(participants, survivors)
        address = topic_address(participants.topic)
        self.policy.check_predecessor(survivors, session.signed_sums.get(self.predecessors.get(address, "")))
        session.survivors = session.signed_sums[address] = survivors
        return secrets.signing_key.sign(participants.survivor_statement(survivors)), None

    @work(reveals="each")
    def reveal(self, ctx: Any, signatures: dict[ClientId, bytes], session: ClientSession | None) -> tuple[Any, None]:
        """Return what opens the sum, if enough other clients have signed the same list of survivors."""
        session = _require_session(session)
        session.begin_stage("reveal", ctx.round)
        _check_type(signatures, dict)
        holders = self.masking.share_holders(session.participants, ctx.client)
        self.policy.check_signatures(signatures, session, holders, self.masking.threshold_count(len(holders)))
        answer = self.masking.make_answer(session.held_shares.keys(), session.open_share, session.survivors)
        session.erase()
        return answer, None

    def _check_noise_suffices(self, participants: SumParticipants, survivors: tuple[ClientId, ...]) -> None:
        if topic_address(participants.topic) not in self.encoding.noise:
            return
        minimum = self.masking.min_survivors(len(participants.clients))
        if len(survivors) < minimum:
            raise PrivacyError(
                f"the sum would have {len(survivors)} clients, and its noise suffices from {minimum} on; "
                "the sum stays hidden."
            )

    def _compute_vector(self, ctx: Any, session: ClientSession, payload: Any) -> Generator[Job, Any, EncodedVector]:
        """Run the client method whose replies are summed, and encode its reply."""
        address = topic_address(session.topic)
        if make_topic(address, payload) != session.topic:
            raise PrivacyError("this client got another payload than was announced to all clients; it does not reply.")
        reply = yield from ctx.invoke(address, payload)
        _check_type(reply, Weighted)
        rng = np.random.Generator(np.random.PCG64(ctx.seed.derive("rounding", session.topic).to_int()))
        return self.encoding.encode(reply, address, len(session.participants.clients), self.masking, rng)

    def _random_source(self, ctx: Any, purpose: str, topic: str) -> RandomBytes:
        return random_source(ctx.seed.derive("secure", purpose, topic) if self.seeded else None)


def _require_session(session: ClientSession | None) -> ClientSession:
    if session is None:
        raise SessionLostError
    return session


def _check_type(value: Any, expected: type) -> None:
    if not isinstance(value, expected):
        raise PrivacyError(f"received a {type(value).__name__}; expected a {expected.__name__}. It is rejected.")
