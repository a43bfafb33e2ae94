"""A secure sum: the exchanges that stand in for one `total`, and the client's half of them.

    advertise   public keys                            → what everybody announced
    share       sealed shares of one's secrets         → the shares meant for each
    upload      the work's reply, masked               → who is in the sum
    confirm     a signature of that list               → everybody's signatures
    reveal      what opens the sum over exactly those

An algorithm's own method is performed inside `upload` (or `share`, where the size of the vector must be known). The server
sees keys, sealed boxes, masked words, signatures, and what opens the sum. Clients check everything they are told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from motet.codecs.chain import CodecChain, EncodedParams
from motet.codecs.fixed_point import FixedPoint
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.messages import message
from motet.core.params import Layout, Params
from motet.core.script import ClientId, Exchange, Script, method_address, to_all, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Job, Work
from motet.secure.client_session import ClientPolicy, ClientSession, EncodedVector, SealedShare, SumSecrets
from motet.secure.crypto import (
    KEY_BYTES,
    AgreementKey,
    BytesLike,
    Ciphertext,
    RandomBytes,
    encrypt,
    is_ciphertext,
    is_valid_public_key,
    random_source,
)
from motet.secure.identities import Identities
from motet.secure.participants import PublicKeys, SumParticipants, key_statement

ShareOf = Callable[[ClientId], Iterable[memoryview]]


@message
@dataclass(frozen=True, eq=False)
class ShareRequest:
    """Everybody's keys; and what the work is asked, if it is to be done before shares are made."""

    hellos: dict[ClientId, PublicKeys]
    payload: Any = None


@message
@dataclass(frozen=True, eq=False)
class UploadRequest:
    """Sealed shares by sender; and what the work is asked, if it has not been done."""

    parcels: dict[ClientId, Ciphertext]
    payload: Any = None


@message
@dataclass(frozen=True, eq=False)
class MaskedVector:
    """A vector nobody can read: 32-bit words, and how the numbers were laid out."""

    layout: Layout
    double: bool
    words: torch.Tensor


class Masking(Protocol):
    """What distinguishes one protocol from another: which shares are made, how a vector is masked, how a sum is opened."""

    @property
    def modulus(self) -> int: ...
    @property
    def early(self) -> bool:
        """Whether shares depend on the size of the vector, so that the work comes before them."""

    def holders(self, circle: SumParticipants, client: ClientId) -> tuple[ClientId, ...]: ...
    def threshold_count(self, holders: int, /) -> int: ...
    def fewest(self, clients: int) -> int:
        """How many of so many clients may be all that are in a sum, where noise must suffice."""

    def holds_together(self, circle: SumParticipants, survivors: Collection[ClientId]) -> bool: ...
    def shares(
        self, seed: bytes, key: AgreementKey, circle: SumParticipants, me: ClientId, size: int, draw: RandomBytes
    ) -> dict[ClientId, BytesLike]: ...
    def mask(
        self,
        words: np.ndarray,
        seed: bytes,
        key: AgreementKey,
        circle: SumParticipants,
        me: ClientId,
        peers: Collection[ClientId],
    ) -> None: ...
    def add(self, total: np.ndarray, words: np.ndarray) -> None: ...
    def opens(self, clients: int, size: int, answer: Any) -> bool:
        """Whether this has the form of a survivor's answer."""

    def answer(self, held: Collection[ClientId], share_of: ShareOf, survivors: Collection[ClientId]) -> Any: ...
    def unmask(
        self,
        total: np.ndarray,
        circle: SumParticipants,
        shared: Sequence[ClientId],
        alive: Collection[ClientId],
        answers: Mapping[ClientId, Any],
    ) -> None: ...


@message
@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """Masked words added up, of whom they are, and what they stand for."""

    members: tuple[str, ...]
    layout: Layout
    double: bool
    words: torch.Tensor


class ValidReplies:
    """Gathers the replies that are what they should be; one that is not counts as that client's failure, not as everybody's."""

    def __init__(self, sound: Callable[[ClientId, Any], bool]) -> None:
        self.sound, self.replies = sound, dict[ClientId, Any]()

    def add(self, client: ClientId, reply: Any) -> None:
        if not self.sound(client, reply):
            raise RunError(f"{client}'s part of a secure sum is not of the form that was asked for; it is left out.")
        self.replies[client] = reply

    def value(self) -> dict[ClientId, Any]:
        return self.replies


class MaskedSum:
    """Adds masked words in place: a cohort of any size costs this one buffer."""

    def __init__(self, masking: Masking, single: bool) -> None:
        self.masking, self.members, self.single = masking, list[ClientId](), single
        self.first: MaskedVector | None = None
        self.total = np.zeros(0, np.uint32)

    def add(self, client: ClientId, reply: MaskedVector) -> None:
        _expect(reply, MaskedVector)
        count = reply.layout.size * (2 if reply.double and not self.single else 1) + 2
        if reply.words.dtype != torch.int32 or reply.words.shape != (count,):
            raise RunError(
                f"{client}'s masked reply is not {count} words of 32 bits, as its layout says; it is left out."
            )
        words = reply.words.numpy().view(np.uint32)
        if self.first is None:
            self.first, self.total = reply, np.zeros_like(words)
        if (reply.layout, reply.double) != (self.first.layout, self.first.double):
            raise RunError(
                f"{client}'s masked reply has another layout than the others'; use the same model and layers everywhere."
            )
        self.masking.add(self.total, words)
        self.members.append(client)

    def value(self) -> MaskedTotal:
        if self.first is None:
            raise RunError("no client uploaded anything; there is nothing to sum.")
        words = torch.from_numpy(self.total.view(np.int32))
        return MaskedTotal(tuple(self.members), self.first.layout, self.first.double, words)


def make_topic(address: str, payload: Any) -> str:
    """What a sum is about: the work and, where it is asked with a plain number, that number. Clients seal their shares with the
    topic, so that none can be told another than its peers: a server could else make all but one of them count for nothing."""
    return f"{address}?{payload.hex()}" if isinstance(payload, float) else address


def exchange_topic(exchange: Exchange) -> str:
    return make_topic(exchange.address, next(iter(exchange.payloads.values()), None))


def topic_address(topic: str) -> str:
    return topic.partition("?")[0]


@dataclass(frozen=True)
class SecureSum:
    """Rewrites sums (`under`). `largest_weight`: what a reply may count for; its numbers are scaled by weight over it."""

    masking: Masking
    numbers: FixedPoint = FixedPoint()
    largest_weight: float = 1024.0
    demands: ClientPolicy = ClientPolicy()
    identities: Identities = Identities()
    seeded: bool = False  # masks from the run's seed: for simulations that must repeat to the last byte; not secure
    codecs: CodecChain = CodecChain()
    noise: Mapping[str, SkellamNoise] = field(default_factory=dict)  # inside the integers of which work's replies
    name: str = "secure"
    ephemeral: bool = True  # what it remembers must not reach a disk

    # ---- the server's half ----

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        early, asked = self.masking.early, exchange.payloads
        topic = exchange_topic(exchange)
        hellos: dict[ClientId, PublicKeys] = yield self._ask(
            self.advertise, to_all(asked, topic), lambda _, reply: are_valid_keys(reply)
        )
        self._enough(len(hellos), self.demands.minimum, "announced themselves")
        circle = SumParticipants(0, topic, hellos)
        introduce = {c: ShareRequest(hellos, asked[c] if early else None) for c in hellos}
        parcels = yield self._ask(self.share, introduce, partial(self._addressed, circle))
        self._enough(len(parcels), self.demands.minimum, "sent shares")
        mail = {c: {s: box[c] for s, box in parcels.items() if c in box} for c in parcels}
        deliver = {c: UploadRequest(mail[c], None if early else asked[c]) for c in parcels}
        shared = tuple(parcels)
        del parcels, mail  # LightSecAgg's are as long as all vectors together, and more
        masked = partial(MaskedSum, self.masking, exchange.address in self.noise)
        summed: MaskedTotal = yield Exchange(method_address(self.upload), deliver, "each", masked)
        del deliver
        alive = summed.members
        self._enough(len(alive), self.demands.minimum, "uploaded")
        signatures = yield self._ask(self.confirm, to_all(alive, alive), lambda _, reply: isinstance(reply, bytes))
        opens = partial(self.masking.opens, len(hellos), summed.words.numel())
        answers = yield self._ask(self.reveal, to_all(signatures, signatures), lambda _, reply: opens(reply))
        return self._opened(summed, circle, shared, answers)

    def _ask(self, stage: Any, payloads: Mapping[ClientId, Any], sound: Callable[[ClientId, Any], bool]) -> Exchange:
        return Exchange(method_address(stage), payloads, "each", partial(ValidReplies, sound))

    def _addressed(self, circle: SumParticipants, client: ClientId, boxes: Any) -> bool:
        """Whether these are a box for each who is to hold a share: who leaves one out would keep all others from finishing."""
        holders = {*self.masking.holders(circle, client)} - {client}
        return isinstance(boxes, dict) and boxes.keys() == holders and all(map(is_ciphertext, boxes.values()))

    def _enough(self, count: int, needed: int, what: str) -> None:
        if count < needed:
            raise RunError(f"{count} clients {what} and a secure sum is over at least {needed}; nothing is revealed.")

    def _opened(
        self, summed: MaskedTotal, circle: SumParticipants, shared: Sequence[ClientId], answers: Mapping[ClientId, Any]
    ) -> Weighted:
        words = summed.words.numpy().view(np.uint32).copy()
        self.masking.unmask(words, circle, shared, set(summed.members), answers)
        clients, layout, double = len(circle.hellos), summed.layout, summed.double
        total = RunningSum()
        total.weight = float(self.numbers.decode(words[-2:], True, clients, self.masking.modulus))
        if not 0 <= total.weight <= len(summed.members) * self.largest_weight:
            raise RunError(
                "the sum opened to weights that its clients cannot have: somebody's share or vector is not what it should be. "
                "It is thrown away."
            )
        total.sum = Params(layout, self._decoded(words[:-2], double, topic_address(circle.address), clients))
        mean = total.value()
        if double:
            return mean
        decoded: Params = self.codecs.decode(
            EncodedParams(layout, mean.value.flat.float(), (None,) * len(self.codecs.codecs))
        )
        return Weighted(decoded, mean.weight)

    # ---- the client's half ----

    @work(reveals="each")
    def advertise(self, ctx: Any, address: str, old: ClientSession | None) -> tuple[PublicKeys, ClientSession]:
        """New keys for a new sum; whatever was left of the last one is forgotten."""
        if old is not None:
            old.close()
        _expect(address, str)
        draw = self._entropy(ctx, "keys", address)
        signer = self.identities.signer(ctx.client, draw)
        secrets = SumSecrets(AgreementKey(draw(KEY_BYTES)), AgreementKey(draw(KEY_BYTES)), draw(KEY_BYTES), signer)
        text = key_statement(ctx.round, address, ctx.client, secrets.box.public, secrets.key.public)
        hello = PublicKeys(secrets.box.public, secrets.key.public, signer.public, signer.sign(text))
        return hello, ClientSession(ctx.client, ctx.round, address, hello, secrets)

    @work(reveals="each")
    def share(
        self, ctx: Any, ask: ShareRequest, own: ClientSession | None
    ) -> Work[tuple[dict[ClientId, Ciphertext], None]]:
        """Shares of one's secrets, each sealed for the one who is to hold it."""
        session = _begun(own)
        secrets = session.enter("share", ctx.round)
        _expect(ask, ShareRequest)
        session.circle = circle = SumParticipants(session.round, session.address, ask.hellos)
        self.demands.circle(circle, session, self.identities.known(circle.members))
        size = 0
        if self.masking.early:
            session.vector = yield from self._vector(ctx, session, ask.payload)
            session.still(secrets)
            size = session.vector.words.size
        draw = self._entropy(ctx, "shares", session.address)
        shares = self.masking.shares(secrets.seed, secrets.key, circle, ctx.client, size, draw)
        about, mine = circle.digest.encode(), draw(KEY_BYTES)
        session.held[ctx.client] = SealedShare(encrypt(mine, shares.pop(ctx.client), about), mine)
        boxes = dict[ClientId, Ciphertext]()
        for to in [*shares]:  # a share is let go when it is sealed
            boxes[to] = encrypt(_sealing(session, secrets, to, ctx.client, to), shares.pop(to), about)
        return boxes, None

    @work(reveals="each")
    def upload(self, ctx: Any, ask: UploadRequest, own: ClientSession | None) -> Work[tuple[MaskedVector, None]]:
        """Do the work, and send its reply masked."""
        session = _begun(own)
        secrets = session.enter("upload", ctx.round)
        _expect(ask, UploadRequest)
        circle, me = session.circle, ctx.client
        holders = self.masking.holders(circle, me)
        self.demands.mail({*ask.parcels, me}, holders, self.masking.threshold_count(len(holders)))
        for sender in ask.parcels.keys() - {me}:
            session.held[sender] = SealedShare(ask.parcels[sender], _sealing(session, secrets, sender, sender, me))
            deque(
                session.share_of(sender), 0
            )  # looked through: what is not genuine is refused before anything is uploaded
        vector = session.vector or (yield from self._vector(ctx, session, ask.payload))
        session.still(secrets)
        session.vector = None
        self.masking.mask(vector.words, secrets.seed, secrets.key, circle, me, session.held)
        return MaskedVector(vector.layout, vector.double, torch.from_numpy(vector.words.view(np.int32))), None

    @work(reveals="each")
    def confirm(self, ctx: Any, survivors: tuple[ClientId, ...], own: ClientSession | None) -> tuple[bytes, None]:
        """Sign who is in the sum; after this, no other list is looked at."""
        session = _begun(own)
        secrets = session.enter("confirm", ctx.round)
        _expect(survivors, tuple)
        holders = self.masking.holders(session.circle, ctx.client)
        self.demands.survivors(survivors, session, holders, self.masking.threshold_count(len(holders)))
        if not self.masking.holds_together(session.circle, survivors):
            raise PrivacyError(
                "the survivors fall into groups that share no masks, so the server would learn more than one sum."
            )
        fewest = self.masking.fewest(len(session.circle.members)) if topic_address(session.address) in self.noise else 0
        if len(survivors) < fewest:
            raise PrivacyError(
                f"a sum over {len(survivors)} clients was to be opened, and the noise in it suffices from {fewest} on; "
                "it stays closed."
            )
        session.survivors = survivors
        return secrets.signer.sign(session.circle.statement(survivors)), None

    @work(reveals="each")
    def reveal(self, ctx: Any, signatures: dict[ClientId, bytes], own: ClientSession | None) -> tuple[Any, None]:
        """Give out what opens the sum, once enough others have signed for the same one."""
        session = _begun(own)
        session.enter("reveal", ctx.round)
        _expect(signatures, dict)
        holders = self.masking.holders(session.circle, ctx.client)
        self.demands.signatures(signatures, session, holders, self.masking.threshold_count(len(holders)))
        answer = self.masking.answer(session.held.keys(), session.share_of, session.survivors)
        session.close()
        return answer, None

    def _vector(self, ctx: Any, session: ClientSession, payload: Any) -> Generator[Job, Any, EncodedVector]:
        """The work's reply as integers: its numbers times its weight, and then the weight."""
        address = topic_address(session.address)
        if make_topic(address, payload) != session.address:
            raise PrivacyError("this client was asked another number than was announced to all; it does not answer.")
        reply = yield from ctx.invoke(address, payload)
        _expect(reply, Weighted)
        if not 0 <= reply.weight <= self.largest_weight:
            raise ConfigError(
                f"a reply counts for more than secure.largest_weight={self.largest_weight:g} (or for less than nothing); "
                "raise it to the largest number of examples that a client has, or use algorithm.weighting=uniform."
            )
        clients = len(session.circle.hellos)
        rng = np.random.Generator(np.random.PCG64(ctx.seed.derive("rounding", session.address).to_int()))
        weight = torch.tensor([reply.weight], dtype=torch.float64)
        words = [
            self._encoded(reply, address, clients, rng),
            self.numbers.encode(weight, 1.0, clients, self.masking.modulus, rng),
        ]
        return EncodedVector(reply.value.layout, reply.value.flat.dtype == torch.float64, np.concatenate(words))

    def _encoded(self, reply: Weighted, address: str, clients: int, rng: np.random.Generator) -> np.ndarray:
        flat, modulus = self._coded(reply.value), self.masking.modulus
        if address in self.noise:
            return self.noise[address].encode(flat * reply.weight, clients, self.masking.fewest(clients), modulus, rng)
        if flat.dtype == torch.float64:
            return self.numbers.encode(flat * reply.weight, 1.0, clients, modulus, rng)
        return self.numbers.encode(flat, reply.weight / self.largest_weight, clients, modulus, rng)

    def _decoded(self, words: np.ndarray, double: bool, address: str, clients: int) -> torch.Tensor:
        """The sum of the numbers times their weights: what `_encoded` made of them, added up."""
        modulus = self.masking.modulus
        if address in self.noise:
            return self.noise[address].decode(words, clients, self.masking.fewest(clients), modulus)
        return self.numbers.decode(words, double, clients, modulus) * (1.0 if double else self.largest_weight)

    def _coded(self, value: Params) -> torch.Tensor:
        coded = self.codecs.encode(value)
        body: torch.Tensor = coded.body if isinstance(coded, EncodedParams) else value.flat
        return body

    def _entropy(self, ctx: Any, purpose: str, address: str) -> RandomBytes:
        return random_source(ctx.seed.derive("secure", purpose, address) if self.seeded else None)


def are_valid_keys(reply: Any) -> bool:
    """Whether these are keys that others can work with; a single one that is not would keep everybody from going on."""
    return (
        isinstance(reply, PublicKeys)
        and is_valid_public_key(reply.box)
        and is_valid_public_key(reply.mask)
        and len(reply.signer) == KEY_BYTES
    )


def _sealing(
    session: ClientSession, secrets: SumSecrets, peer: ClientId, sender: ClientId, receiver: ClientId
) -> bytes:
    """The key for one parcel in one direction."""
    return secrets.box.agreed(session.circle.hellos[peer].box, f"share {sender}>{receiver} {session.circle.digest}")


def _begun(session: ClientSession | None) -> ClientSession:
    if session is None:
        raise PrivacyError("no sum was begun with this client; it must be asked to advertise its keys first.")
    return session


def _expect(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise PrivacyError(f"a {type(value).__name__} came where a {kind.__name__} belongs; it is refused.")
