"""A server that does not keep to the rules, and clients that do not rely on it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sums import Plainly, host_for, vectors

from motet.codecs.skellam import SkellamNoise
from motet.core.script import ClientId, work
from motet.core.weighted import Weighted
from motet.secure import SECURE, secagg, secagg_plus
from motet.secure.crypto import AgreementKey, SigningKey
from motet.secure.identities import Identities
from motet.secure.participants import PublicKeys, key_statement
from motet.secure.protocol import SecureSum, ShareRequest, UploadRequest, make_topic
from motet.transport.requests import Reply, Request


@dataclass(frozen=True)
class Slowly:
    """Work that waits for its executor, so that two requests are under way together."""

    given: Mapping[ClientId, Weighted]
    name: str = "plainly"

    @work(reveals="sum")
    def give(self, ctx: Any, ask: Any, memory: None) -> Iterator[Any]:
        yield "a job"
        return self.given[ctx.client], None


class TwoAtOnce:
    """An executor that begins a second work before it finishes the first."""

    capacity = 2

    def __init__(self) -> None:
        self.keys: list[Hashable] = []

    def submit(self, key: Hashable, job: Any) -> None:
        self.keys.append(key)

    def wait_completed(self) -> list[tuple[Hashable, Any]]:
        return [(self.keys.pop(0), None)]


class Server:
    """Asks whatever it likes, in whatever order; each client sees only what is sent to it."""

    def __init__(self, secure: SecureSum, clients: int = 5) -> None:
        self.given = vectors(clients)
        self.names = list(self.given)
        self.host = host_for([Plainly(self.given), secure], behind={"plainly": frozenset({"secure"})})
        self.secure, self.early = secure, secure.masking.early
        self.number = 0

    def request(self, client: ClientId, address: str, payload: Any, round: int = 0) -> Request:
        self.number += 1
        return Request(self.number, client, round, address if "." in address else f"secure.{address}", payload)

    def ask(self, client: ClientId, address: str, payload: Any, round: int = 0) -> Reply:
        return next(self.host.replies(iter([self.request(client, address, payload, round)])))

    def value(self, client: ClientId, address: str, payload: Any) -> Any:
        reply = self.ask(client, address, payload)
        assert reply.error is None, reply.error
        return reply.value

    def refused(self, client: ClientId, address: str, payload: Any, because: str, round: int = 0) -> None:
        reply = self.ask(client, address, payload, round)
        assert reply.value is None
        assert because in str(reply.error), reply.error

    def hellos(self) -> dict[ClientId, PublicKeys]:
        return {c: self.value(c, "advertise", "plainly.give") for c in self.names}

    def mail(self) -> dict[ClientId, dict[ClientId, bytes]]:
        hellos = self.hellos()
        boxes = {c: self.value(c, "share", ShareRequest(hellos)) for c in self.names}
        return {c: {s: box[c] for s, box in boxes.items() if c in box} for c in self.names}

    def uploaded(self) -> tuple[ClientId, ...]:
        for client, parcels in self.mail().items():
            self.value(client, "upload", UploadRequest(parcels))
        return tuple(self.names)


@pytest.fixture(params=[n for n in SECURE if n != "none"])
def server(request: pytest.FixtureRequest) -> Server:
    made = SECURE[request.param]()
    assert made is not None
    return Server(made)


def test_both_secrets_of_one_client_cannot_be_asked_for_one_after_the_other(server: Server) -> None:
    alive = server.uploaded()
    signatures = {c: server.value(c, "confirm", alive) for c in alive}
    for client in alive:
        server.value(client, "reveal", signatures)
    fewer = alive[1:]
    server.refused(alive[1], "confirm", fewer, "every stage comes once")
    server.refused(alive[1], "reveal", signatures, "every stage comes once")


def test_two_lists_of_survivors_cannot_both_be_opened(server: Server) -> None:
    """To get a client's seed from some and its key from others, a server tells some that it survived, and others not."""
    alive = server.uploaded()
    told = {c: alive if k < 2 else tuple(a for a in alive if a != alive[0]) for k, c in enumerate(alive)}
    signatures = {c: server.ask(c, "confirm", told[c]).value for c in alive}
    signatures = {c: s for c, s in signatures.items() if s is not None}
    revealed = [c for c in signatures if server.ask(c, "reveal", signatures).error is None]
    kinds = {told[c] for c in revealed}
    assert len(kinds) <= 1
    for client in alive[:2]:
        assert client not in revealed


@pytest.mark.parametrize("protocol", ["secagg", "light_secagg"])  # seven of ten must finish
@pytest.mark.parametrize(("colluders", "both"), [(3, False), (4, True)])
def test_clients_in_league_with_a_server_that_lies_open_two_lists_from_2t_minus_n_on(
    protocol: str, colluders: int, both: bool
) -> None:
    """They sign every list. With fewer, no two lists find enough who sign them, however the rest is divided."""
    seen = set()
    for told_all in range(10 - colluders + 1):
        server = Server(SECURE[protocol](), clients=10)
        alive = server.uploaded()
        lists = (alive, tuple(c for c in alive if c != alive[0]))
        honest, league = alive[: 10 - colluders], alive[10 - colluders :]
        signed: tuple[dict[ClientId, bytes], dict[ClientId, bytes]] = ({}, {})
        for place, client in enumerate(honest):  # the first is the one to be exposed, and signs no list without itself
            which = 0 if place < told_all else 1
            reply = server.ask(client, "confirm", lists[which])
            if reply.error is None:
                signed[which][client] = reply.value
        for client in league:
            session = server.host.secrets.get("secure", client)
            for which in (0, 1):
                signed[which][client] = session.secrets.signer.sign(session.circle.statement(lists[which]))
        revealed = [
            any(server.ask(c, "reveal", signed[which]).error is None for c in honest if c in signed[which])
            for which in (0, 1)
        ]
        seen.add(all(revealed))
    assert (True in seen) == both


def test_a_number_is_the_same_for_all_or_nothing_is_uploaded(server: Server) -> None:
    """Told that the weights of all are huge, everybody but one would count for nothing, and the sum be that one's reply."""
    victim, told = server.names[0], dict.fromkeys(server.names, 1e30) | {server.names[0]: 1.0}
    hellos = {c: server.value(c, "advertise", make_topic("plainly.give", told[c])) for c in server.names}
    boxes = {}
    for client in server.names:
        reply = server.ask(client, "share", ShareRequest(hellos, told[client] if server.early else None))
        boxes[client] = reply.value or {}
    for client in server.names:
        mail = {s: box[client] for s, box in boxes.items() if client in box}
        reply = server.ask(client, "upload", UploadRequest(mail, None if server.early else told[client]))
        assert reply.error is not None
    server = Server(server.secure)
    hellos = {c: server.value(c, "advertise", make_topic("plainly.give", 1e30)) for c in server.names}
    if server.early:
        server.refused(victim, "share", ShareRequest(hellos, 1.0), "another number than was announced")
        return
    boxes = {c: server.value(c, "share", ShareRequest(hellos)) for c in server.names}
    mail = {s: box[victim] for s, box in boxes.items() if victim in box}
    server.refused(victim, "upload", UploadRequest(mail, 1.0), "another number than was announced")


def test_a_list_of_survivors_is_signed_once(server: Server) -> None:
    alive = server.uploaded()
    server.value(alive[1], "confirm", alive)
    server.refused(alive[1], "confirm", alive[1:], "every stage comes once")


def test_signatures_of_others_must_be_real(server: Server) -> None:
    alive = server.uploaded()
    own = {c: server.value(c, "confirm", alive) for c in alive}
    forged = {c: own[c] if c == alive[0] else own[alive[0]] for c in alive}
    server.refused(alive[0], "reveal", forged, "have signed the list")


def test_no_stage_comes_out_of_order(server: Server) -> None:
    client = server.names[0]
    for stage, payload in (("share", ShareRequest({})), ("upload", UploadRequest({})), ("confirm", ()), ("reveal", {})):
        server.refused(client, stage, payload, "no sum was begun")
    server.hellos()
    for stage, payload in (("upload", UploadRequest({})), ("confirm", tuple(server.names)), ("reveal", {})):
        server.refused(client, stage, payload, "every stage comes once and in order")


def test_no_stage_comes_twice(server: Server) -> None:
    mail = server.mail()
    client = server.names[0]
    server.value(client, "upload", UploadRequest(mail[client]))
    server.refused(client, "upload", UploadRequest(mail[client]), "every stage comes once")
    server.refused(client, "share", ShareRequest({}), "every stage comes once")


def test_two_uploads_asked_for_at_once_do_not_share_a_mask(server: Server) -> None:
    mail = server.mail()
    client = server.names[0]
    both = [server.request(client, "upload", UploadRequest(mail[client])) for _ in range(2)]
    server.host.programs["plainly"] = Slowly(server.given)
    server.host.executor = TwoAtOnce()
    replies = list(server.host.replies(iter(both)))
    assert sorted(r.error is None for r in replies) == [False, True]


@pytest.mark.parametrize("protocol", ["secagg", "secagg_plus", "light_secagg"])
def test_a_sum_begun_while_a_client_works_for_another_does_not_strip_its_upload_of_masks(protocol: str) -> None:
    """A new sum makes a client forget the old one's peers; its upload would then bear its own mask only, which they open."""
    server = Server(SECURE[protocol]())
    client, hellos = server.names[0], server.hellos()
    server.host.programs["plainly"] = Slowly(server.given)
    if server.early:
        working = server.request(client, "share", ShareRequest(hellos))
    else:
        boxes = {c: server.value(c, "share", ShareRequest(hellos)) for c in server.names}
        parcels = {s: box[client] for s, box in boxes.items() if client in box}
        working = server.request(client, "upload", UploadRequest(parcels))
    server.host.executor = TwoAtOnce()
    begun = server.request(client, "advertise", "plainly.give")
    found = {r.id: r for r in server.host.replies(iter([working, begun]))}
    assert found[begun.id].error is None
    assert found[working.id].value is None
    assert "another sum was begun" in str(found[working.id].error)


def test_a_stage_that_failed_is_not_tried_again_under_the_same_masks(server: Server) -> None:
    mail = server.mail()
    client = server.names[0]
    broken = {sender: torch.cat([box[:-1], box[-1:] ^ 1]) for sender, box in mail[client].items()}
    server.refused(client, "upload", UploadRequest(broken), "was not written by it")
    server.refused(client, "upload", UploadRequest(mail[client]), "every stage comes once")


def test_a_stage_of_another_round_is_refused(server: Server) -> None:
    mail = server.mail()
    server.refused(server.names[0], "upload", UploadRequest(mail[server.names[0]]), "round 7", round=7)


def test_a_survivor_list_below_the_threshold_stays_closed(server: Server) -> None:
    alive = server.uploaded()
    server.refused(alive[0], "confirm", alive[:2], "are needed. It stays closed")


@pytest.mark.parametrize("change", ["leaves it out", "names one twice", "names a stranger"])
def test_a_survivor_list_that_cannot_be_true_is_refused(server: Server, change: str) -> None:
    alive = server.uploaded()
    lists = {"leaves it out": alive[1:], "names one twice": (*alive, alive[1]), "names a stranger": (*alive, "nobody")}
    server.refused(alive[0], "confirm", lists[change], "refused")


def test_a_cohort_smaller_than_the_minimum_is_refused(server: Server) -> None:
    hellos = server.hellos()
    two = {c: hellos[c] for c in server.names[:2]}
    server.refused(server.names[0], "share", ShareRequest(two), "takes part in sums of at least 3")


def test_the_minimum_is_the_clients_own() -> None:
    server = Server(secagg(minimum=6))
    server.refused(server.names[0], "share", ShareRequest(server.hellos()), "sums of at least 6")


def test_nothing_is_given_out_outside_a_secure_sum(server: Server) -> None:
    for address in ("plainly.give", "plainly.tell"):
        server.refused(server.names[0], address, None, "only inside secure")


@pytest.mark.parametrize("address", ["plainly.tell", "secure.reveal", "secure.advertise", "nothing.there"])
def test_only_sums_are_performed_inside_a_sum(server: Server, address: str) -> None:
    names = server.names
    hellos = {c: server.value(c, "advertise", address) for c in names}
    asked = {c: server.ask(c, "share", ShareRequest(hellos)) for c in names}
    if not server.early:
        mail = {s: asked[s].value[names[0]] for s in names[1:]}
        asked[names[0]] = server.ask(names[0], "upload", UploadRequest(mail))
    assert asked[names[0]].value is None
    assert "only what does can be performed" in str(asked[names[0]].error) or "not offered" in str(
        asked[names[0]].error
    )


def test_a_client_shown_other_keys_than_its_own_stops(server: Server) -> None:
    hellos = server.hellos()
    first, second, *_ = server.names
    other = AgreementKey(os.urandom(32)).public
    changed = {**hellos, first: replace(hellos[first], mask=other)}
    server.refused(first, "share", ShareRequest(changed), "own keys are not among")
    missing = {c: h for c, h in hellos.items() if c != second}
    server.refused(second, "share", ShareRequest(missing), "own keys are not among")


@pytest.mark.parametrize("kind", ["box", "mask", "signer"])
def test_one_key_shown_for_two_clients_is_refused(server: Server, kind: str) -> None:
    hellos = server.hellos()
    first, second, third, *_ = server.names
    doubled = {**hellos, third: replace(hellos[third], **{kind: getattr(hellos[second], kind)})}
    server.refused(first, "share", ShareRequest(doubled), "same")


def test_too_few_parcels_keep_a_client_from_uploading(server: Server) -> None:
    mail = server.mail()
    client, peer = server.names[:2]
    server.refused(client, "upload", UploadRequest({peer: mail[client][peer]}), "before anything is uploaded")


def test_a_share_meant_for_another_cannot_be_delivered(server: Server) -> None:
    mail = server.mail()
    client, peer = server.names[:2]
    swapped = {**mail[client], peer: mail[server.names[2]][peer]}
    server.refused(client, "upload", UploadRequest(swapped), f"share from {peer} was not written")


@pytest.mark.parametrize("payload", [None, 3, "x", {"a": 1}])
@pytest.mark.parametrize("stage", ["share", "upload", "confirm", "reveal"])
def test_nonsense_is_refused_in_a_sentence(stage: str, payload: Any) -> None:
    server = Server(secagg())
    before = {"share": server.hellos, "upload": server.mail, "confirm": server.uploaded}
    if stage in before:
        before[stage]()
    else:
        alive = server.uploaded()
        server.value(alive[0], "confirm", alive)
    if stage == "reveal" and isinstance(payload, dict):
        server.refused(server.names[0], stage, payload, "have signed the list")
    else:
        server.refused(server.names[0], stage, payload, "it is refused")


def test_survivors_that_share_no_masks_in_one_piece_are_refused() -> None:
    server = Server(secagg_plus(neighbours=4, dropouts=0.0, threshold=0.5), clients=12)
    server.uploaded()
    session = server.host.secrets.get("secure", server.names[0])
    seats = {seat: client for client, seat in session.circle.seats.items()}
    mine = session.circle.seats[server.names[0]]
    gone = {seats[(mine + k) % 12] for k in (3, 4, 8, 9)}  # two gaps as wide as a neighbour's reach
    server.refused(server.names[0], "confirm", tuple(c for c in server.names if c not in gone), "more than one sum")


def test_a_sum_whose_noise_would_not_suffice_stays_closed() -> None:
    """On a ring nobody's neighbours count all survivors; where noise rests on their number, everybody does."""
    secure = secagg_plus(neighbours=4, dropouts=0.1)
    for noise, because in (({}, ""), ({"plainly.give": SkellamNoise(1.0, 1.0)}, "the noise in it suffices from 10 on")):
        server = Server(replace(secure, noise=noise), clients=12)
        server.uploaded()
        session = server.host.secrets.get("secure", server.names[0])
        seats, mine = (
            {seat: client for client, seat in session.circle.seats.items()},
            session.circle.seats[server.names[0]],
        )
        gone = {seats[(mine + k) % 12] for k in (3, 6, 9)}
        nine = tuple(c for c in server.names if c not in gone)
        if because:
            server.refused(server.names[0], "confirm", nine, because)
        else:
            assert server.value(server.names[0], "confirm", nine)


# ---- a server that makes up clients ---------------------------------------------------------------------------------------


def identified(folder: Path, clients: int = 4) -> Server:
    files = Identities(str(folder))
    for client in vectors(clients):
        files.create(client, os.urandom)
    return Server(secagg(identities=str(folder)), clients)


def test_clients_that_know_each_other_sum_as_usual(tmp_path: Path) -> None:
    server = identified(tmp_path)
    alive = server.uploaded()
    signatures = {c: server.value(c, "confirm", alive) for c in alive}
    assert all(server.value(c, "reveal", signatures) for c in alive)


def test_a_made_up_client_is_found_out(tmp_path: Path) -> None:
    server = identified(tmp_path)
    hellos = server.hellos()
    first, second, *_ = server.names
    box, mask, signer = AgreementKey(os.urandom(32)), AgreementKey(os.urandom(32)), SigningKey(os.urandom(32))
    text = key_statement(0, "plainly.give", second, box.public, mask.public)
    fake = PublicKeys(box.public, mask.public, signer.public, signer.sign(text))
    server.refused(first, "share", ShareRequest({**hellos, second: fake}), "not the one on file")


def test_keys_changed_on_the_way_or_kept_from_an_earlier_round_are_found_out(tmp_path: Path) -> None:
    server = identified(tmp_path)
    earlier, hellos = server.hellos(), server.hellos()
    first, second, third, _ = server.names
    swapped = replace(hellos[second], box=AgreementKey(os.urandom(32)).public)
    server.refused(first, "share", ShareRequest({**hellos, second: swapped}), "not signed by it for this sum")
    later = {c: server.ask(c, "advertise", "plainly.give", round=1).value for c in server.names}
    stale = {**later, second: earlier[second]}
    server.refused(third, "share", ShareRequest(stale), "not signed by it for this sum", round=1)
