"""A client in a secure sum protects itself against a server that breaks the protocol."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sums import BEHIND_SECURE_SUM, LossyTransport, VectorProgram, make_runtime, make_vectors, run_sum

from motet.codecs import int8
from motet.codecs.chain import Channel, CodecChain
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import PrivacyError
from motet.core.params import Params
from motet.core.script import ClientId, Exchange, Program, rewrite_sums, to_all, total, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Executor
from motet.secure import SECURE, secagg, secagg_plus
from motet.secure.client_session import ClientSession
from motet.secure.crypto import AgreementKey, Ciphertext, SigningKey
from motet.secure.identities import Identities
from motet.secure.participants import PublicKeys, key_statement
from motet.secure.protocol import SecureSum
from motet.secure.server_script import run_secure_sum
from motet.secure.sum_messages import ShareRequest, UploadRequest, make_topic
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request

ADDRESS = "vectors.send_vector"
TOPIC = make_topic(ADDRESS, None)
ONCE_AND_IN_ORDER = "every stage runs once and in order"


@dataclass(frozen=True)
class SlowVectorProgram(Program):
    """Waits for the executor, so that two requests can run at the same time."""

    vectors: Mapping[ClientId, Weighted]
    name: str = "vectors"

    @work(reveals="sum")
    def send_vector(self, ctx: Any, payload: Any, client_state: None) -> Iterator[Any]:
        yield "a job"
        return self.vectors[ctx.client], None


class TwoAtOnceExecutor(Executor):
    """Starts a second job before it finishes the first."""

    capacity = 2

    def __init__(self) -> None:
        self.keys: list[Hashable] = []

    def submit(self, key: Hashable, job: Any) -> None:
        self.keys.append(key)

    def wait_completed(self) -> list[tuple[Hashable, Any]]:
        return [(self.keys.pop(0), None)]

    def run(self, job: Any) -> Any:
        raise NotImplementedError


class MaliciousServer:
    """Sends any request in any order. Each client sees only what is sent to it."""

    def __init__(self, secure: SecureSum, clients: int = 5) -> None:
        self.vectors = make_vectors(clients)
        self.clients = list(self.vectors)
        self.runtime = make_runtime([VectorProgram(self.vectors), secure], required_wrappers=BEHIND_SECURE_SUM)
        self.secure, self.works_early = secure, secure.masking.shares_need_vector
        self.last_id = 0

    def make_request(self, client: ClientId, address: str, payload: Any, round: int = 0) -> Request:
        self.last_id += 1
        return Request(self.last_id, client, round, address if "." in address else f"secure.{address}", payload)

    def send(self, client: ClientId, address: str, payload: Any, round: int = 0) -> Reply:
        request = self.make_request(client, address, payload, round)
        return next(self.runtime.answer_requests(iter([request])))

    def call(self, client: ClientId, address: str, payload: Any) -> Any:
        reply = self.send(client, address, payload)
        assert reply.error is None, reply.error
        return reply.value

    def expect_error(self, client: ClientId, address: str, payload: Any, error: str, round: int = 0) -> None:
        reply = self.send(client, address, payload, round)
        assert reply.value is None
        assert error in str(reply.error), reply.error

    def session(self, client: ClientId) -> ClientSession:
        session: ClientSession = self.runtime.ephemeral_states.get("secure", client)
        return session

    def advertise(self, topic: str = TOPIC) -> dict[ClientId, PublicKeys]:
        return {client: self.call(client, "advertise", topic) for client in self.clients}

    def share(self, public_keys: Mapping[ClientId, PublicKeys]) -> dict[ClientId, dict[ClientId, Ciphertext]]:
        """Return the shares by receiver and sender."""
        by_sender = {client: self.call(client, "share", ShareRequest(dict(public_keys))) for client in self.clients}
        return {client: shares_for(by_sender, client) for client in self.clients}

    def run_to_share(self) -> dict[ClientId, dict[ClientId, Ciphertext]]:
        return self.share(self.advertise())

    def run_to_upload(self) -> tuple[ClientId, ...]:
        for client, shares in self.run_to_share().items():
            self.call(client, "upload", UploadRequest(shares))
        return tuple(self.clients)

    def run_to_confirm(self) -> dict[ClientId, bytes]:
        survivors = self.run_to_upload()
        return {client: self.call(client, "confirm", survivors) for client in survivors}


def shares_for(
    by_sender: Mapping[ClientId, Mapping[ClientId, Ciphertext]], receiver: ClientId
) -> dict[ClientId, Ciphertext]:
    return {sender: shares[receiver] for sender, shares in by_sender.items() if receiver in shares}


@pytest.fixture(params=[name for name in SECURE if name != "none"])
def server(request: pytest.FixtureRequest) -> MaliciousServer:
    return MaliciousServer(SECURE[request.param]())


# ---- Order and repetition of stages ---------------------------------------------------------------------------------


def test_the_stages_cannot_be_requested_out_of_order(server: MaliciousServer) -> None:
    client = server.clients[0]
    requests = {"share": ShareRequest({}), "upload": UploadRequest({}), "confirm": (), "reveal": {}}
    for stage, payload in requests.items():
        server.expect_error(client, stage, payload, "no sum has begun")
    server.advertise()
    for stage, payload in (("upload", UploadRequest({})), ("confirm", tuple(server.clients)), ("reveal", {})):
        server.expect_error(client, stage, payload, ONCE_AND_IN_ORDER)


def test_a_stage_cannot_be_repeated(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client = server.clients[0]
    server.call(client, "upload", UploadRequest(shares[client]))
    server.expect_error(client, "upload", UploadRequest(shares[client]), ONCE_AND_IN_ORDER)
    server.expect_error(client, "share", ShareRequest({}), ONCE_AND_IN_ORDER)


def test_a_failed_stage_cannot_be_repeated_with_the_same_masks(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client = server.clients[0]
    damaged = {sender: torch.cat([share[:-1], share[-1:] ^ 1]) for sender, share in shares[client].items()}
    server.expect_error(client, "upload", UploadRequest(damaged), "was not encrypted by it")
    server.expect_error(client, "upload", UploadRequest(shares[client]), ONCE_AND_IN_ORDER)


def test_a_stage_in_another_round_is_rejected(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client = server.clients[0]
    server.expect_error(client, "upload", UploadRequest(shares[client]), "in round 8", round=7)


def test_a_list_of_survivors_is_signed_only_once(server: MaliciousServer) -> None:
    survivors = server.run_to_upload()
    server.call(survivors[1], "confirm", survivors)
    server.expect_error(survivors[1], "confirm", survivors[1:], ONCE_AND_IN_ORDER)


def test_the_seed_and_the_key_of_a_client_cannot_be_requested_one_after_the_other(server: MaliciousServer) -> None:
    signatures = server.run_to_confirm()
    survivors = tuple(signatures)
    for client in survivors:
        server.call(client, "reveal", signatures)
    server.expect_error(survivors[1], "confirm", survivors[1:], ONCE_AND_IN_ORDER)
    server.expect_error(survivors[1], "reveal", signatures, ONCE_AND_IN_ORDER)


def test_two_uploads_at_the_same_time_do_not_share_a_mask(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client = server.clients[0]
    requests = [server.make_request(client, "upload", UploadRequest(shares[client])) for _ in range(2)]
    server.runtime.programs["vectors"] = SlowVectorProgram(server.vectors)
    server.runtime.executor = TwoAtOnceExecutor()  # type: ignore[assignment]
    replies = list(server.runtime.answer_requests(iter(requests)))
    assert sorted(reply.error is None for reply in replies) == [False, True]


def test_a_sum_that_begins_while_a_client_works_does_not_remove_the_masks_of_its_upload(
    server: MaliciousServer,
) -> None:
    """A new sum makes a client forget its peers. Its upload would have only its own mask, which the peers reveal."""
    client, public_keys = server.clients[0], server.advertise()
    server.runtime.programs["vectors"] = SlowVectorProgram(server.vectors)
    if server.works_early:
        working = server.make_request(client, "share", ShareRequest(public_keys))
    else:
        working = server.make_request(client, "upload", UploadRequest(server.share(public_keys)[client]))
    server.runtime.executor = TwoAtOnceExecutor()  # type: ignore[assignment]
    new_sum = server.make_request(client, "advertise", TOPIC)
    replies = {reply.id: reply for reply in server.runtime.answer_requests(iter([working, new_sum]))}
    assert replies[new_sum.id].error is None
    assert replies[working.id].value is None
    assert "another sum began" in str(replies[working.id].error)


# ---- Lists of survivors ---------------------------------------------------------------------------------------------


def test_two_lists_of_survivors_cannot_both_be_opened(server: MaliciousServer) -> None:
    """To get a client's seed and its key, a server tells some clients that it survived, and the others that it did not."""
    everybody = server.run_to_upload()
    without_first = everybody[1:]
    lists = {client: everybody if k < 2 else without_first for k, client in enumerate(everybody)}
    replies = {client: server.send(client, "confirm", lists[client]) for client in everybody}
    signatures = {client: reply.value for client, reply in replies.items() if reply.value is not None}
    revealed = [client for client in signatures if server.send(client, "reveal", signatures).error is None]
    assert len({lists[client] for client in revealed}) <= 1
    assert not {*everybody[:2]} & {*revealed}


@pytest.mark.parametrize("protocol", ["secagg", "light_secagg"])  # seven of ten clients must finish
@pytest.mark.parametrize(("colluders", "both_open"), [(3, False), (4, True)])
def test_two_lists_can_be_opened_only_with_2t_minus_n_colluders(protocol: str, colluders: int, both_open: bool) -> None:
    """Colluders sign every list. With fewer, no division of the honest clients gives two lists enough signatures."""
    outcomes = set()
    for first_list_size in range(10 - colluders + 1):
        server = MaliciousServer(SECURE[protocol](), clients=10)
        everybody = server.run_to_upload()
        lists = (everybody, everybody[1:])
        honest, colluding = everybody[: 10 - colluders], everybody[10 - colluders :]
        signatures: tuple[dict[ClientId, bytes], dict[ClientId, bytes]] = ({}, {})
        for position, client in enumerate(honest):  # the first is the victim, and signs no list without itself
            which = 0 if position < first_list_size else 1
            reply = server.send(client, "confirm", lists[which])
            if reply.error is None:
                signatures[which][client] = reply.value
        for client in colluding:
            session = server.session(client)
            assert session.secrets is not None
            for which in (0, 1):
                statement = session.participants.survivor_statement(lists[which])
                signatures[which][client] = session.secrets.signing_key.sign(statement)
        is_open = [
            any(server.send(c, "reveal", signatures[which]).error is None for c in honest if c in signatures[which])
            for which in (0, 1)
        ]
        outcomes.add(all(is_open))
    assert (True in outcomes) == both_open


def test_forged_signatures_are_rejected(server: MaliciousServer) -> None:
    signatures = server.run_to_confirm()
    first = server.clients[0]
    forged = dict.fromkeys(signatures, signatures[first])
    server.expect_error(first, "reveal", forged, "have signed the list")


def test_a_list_below_the_threshold_is_rejected(server: MaliciousServer) -> None:
    survivors = server.run_to_upload()
    server.expect_error(survivors[0], "confirm", survivors[:2], "are needed. The sum stays hidden")


@pytest.mark.parametrize("change", ["without the client", "with a duplicate", "with a stranger"])
def test_an_impossible_list_of_survivors_is_rejected(server: MaliciousServer, change: str) -> None:
    survivors = server.run_to_upload()
    lists = {
        "without the client": survivors[1:],
        "with a duplicate": (*survivors, survivors[1]),
        "with a stranger": (*survivors, "nobody"),
    }
    server.expect_error(survivors[0], "confirm", lists[change], "rejected")


def drop_from_ring(server: MaliciousServer, *offsets: int) -> tuple[ClientId, ...]:
    """Return the clients without those at some offsets from the first client on the ring."""
    positions = server.session(server.clients[0]).participants.ring_positions
    by_position = {position: client for client, position in positions.items()}
    start = positions[server.clients[0]]
    dropped = {by_position[(start + offset) % len(positions)] for offset in offsets}
    return tuple(client for client in server.clients if client not in dropped)


def test_survivors_that_are_not_connected_are_rejected() -> None:
    server = MaliciousServer(secagg_plus(neighbors=4, dropouts=0.0, threshold=0.5), clients=12)
    server.run_to_upload()
    survivors = drop_from_ring(server, 3, 4, 8, 9)  # two gaps as wide as the reach of a client
    server.expect_error(server.clients[0], "confirm", survivors, "more than one sum")


def test_a_sum_with_too_little_noise_stays_closed() -> None:
    """On a ring no neighborhood sees all survivors. If noise depends on their number, every client counts them."""
    secure = secagg_plus(neighbors=4, dropouts=0.1)
    server = MaliciousServer(secure, clients=12)
    server.run_to_upload()
    assert server.call(server.clients[0], "confirm", drop_from_ring(server, 3, 6, 9))
    server = MaliciousServer(secure.with_privacy({ADDRESS: SkellamNoise(1.0, 1.0)}), clients=12)
    server.run_to_upload()
    error = "its noise suffices from 10 on"
    server.expect_error(server.clients[0], "confirm", drop_from_ring(server, 3, 6, 9), error)


# ---- What is summed -------------------------------------------------------------------------------------------------


def test_if_clients_get_different_payloads_nothing_is_uploaded(server: MaliciousServer) -> None:
    """With a huge total weight, all clients but one would count for nothing, and the sum would be that one's reply."""
    numbers = {**dict.fromkeys(server.clients, 1e30), server.clients[0]: 1.0}
    public_keys = {c: server.call(c, "advertise", make_topic(ADDRESS, numbers[c])) for c in server.clients}
    by_sender = {}
    for client in server.clients:
        payload = numbers[client] if server.works_early else None
        by_sender[client] = server.send(client, "share", ShareRequest(public_keys, payload)).value or {}
    for client in server.clients:
        payload = None if server.works_early else numbers[client]
        request = UploadRequest(shares_for(by_sender, client), payload)
        assert server.send(client, "upload", request).error is not None


def test_a_payload_that_was_not_announced_is_rejected(server: MaliciousServer) -> None:
    victim, public_keys = server.clients[0], server.advertise(make_topic(ADDRESS, 1e30))
    error = "another payload than was announced"
    if server.works_early:
        server.expect_error(victim, "share", ShareRequest(public_keys, 1.0), error)
    else:
        shares = server.share(public_keys)
        server.expect_error(victim, "upload", UploadRequest(shares[victim], 1.0), error)


def test_a_model_that_differs_for_one_client_is_never_summed(server: MaliciousServer) -> None:
    """If all others get a model that they answer with a known update, the sum shows the update of the one."""
    models = {c: Params.from_tensors({"w": torch.full((5,), float(c == server.clients[0]))}) for c in server.clients}
    public_keys = server.advertise(make_topic(ADDRESS, models[server.clients[1]]))
    shares: Mapping[ClientId, Any] = {} if server.works_early else server.share(public_keys)
    stage = "share" if server.works_early else "upload"
    for client in reversed(server.clients):
        request: Any = ShareRequest(public_keys, models[client])
        if not server.works_early:
            request = UploadRequest(shares[client], models[client])
        error = server.send(client, stage, request).error
        assert (error is None) == (client != server.clients[0])
        assert error is None or "another payload than was announced" in error


def test_an_honest_server_rejects_payloads_that_differ() -> None:
    secure = secagg()
    exchange = Exchange(ADDRESS, {"a": 1.0, "b": 1.0, "c": 2.0}, "sum", RunningSum)
    with pytest.raises(PrivacyError, match="2 payloads for 3 clients"):
        next(run_secure_sum(secure, exchange))


def test_all_clients_get_the_same_payload_also_from_a_codec_with_random_rounding() -> None:
    vectors, program_payload = make_vectors(3), Params.from_tensors({"w": torch.rand(64)})
    secure = replace(secagg(), down_codecs=CodecChain((int8(),)))
    program = VectorProgram(vectors)
    runtime = make_runtime(
        [program, secure], required_wrappers=BEHIND_SECURE_SUM, channel=Channel(down=CodecChain((int8(),)))
    )
    script = rewrite_sums(secure, total(program.send_vector, to_all(vectors, program_payload)))
    mailbox = Mailbox(LossyTransport(runtime), channel=Channel(down=CodecChain((int8(),))))
    assert run_sum(script, mailbox).weight == sum(vector.weight for vector in vectors.values())


def test_survivors_must_have_been_in_the_sum_that_this_one_builds_on(server: MaliciousServer) -> None:
    """AdaFD sums weights first. A client that was not asked for its weight must not fill up the sum of the logits."""
    server.secure.predecessors["vectors.send_vector"] = "vectors.first_step"  # type: ignore[index]
    survivors = server.run_to_upload()
    victim = survivors[0]
    server.session(victim).signed_sums["vectors.first_step"] = survivors[:-1]
    server.expect_error(victim, "confirm", survivors, "did not take part in the earlier sum")


def test_a_client_remembers_the_sums_of_a_round(server: MaliciousServer) -> None:
    survivors = server.run_to_upload()
    victim = survivors[0]
    server.call(victim, "confirm", survivors)
    server.call(victim, "advertise", TOPIC)
    assert server.session(victim).signed_sums == {ADDRESS: survivors}
    assert server.send(victim, "advertise", TOPIC, round=1).error is None
    assert server.session(victim).signed_sums == {}


def test_nothing_is_revealed_outside_a_secure_sum(server: MaliciousServer) -> None:
    for address in ("vectors.send_vector", "vectors.send_text"):
        server.expect_error(server.clients[0], address, None, "only available inside secure")


@pytest.mark.parametrize("address", ["vectors.send_text", "secure.reveal", "secure.advertise", "nothing.there"])
def test_only_methods_that_reveal_sums_run_inside_a_sum(server: MaliciousServer, address: str) -> None:
    victim, *others = server.clients
    public_keys = server.advertise(make_topic(address, None))
    replies = {client: server.send(client, "share", ShareRequest(public_keys)) for client in server.clients}
    reply = replies[victim]
    if not server.works_early:
        shares = {sender: replies[sender].value[victim] for sender in others}
        reply = server.send(victim, "upload", UploadRequest(shares))
    assert reply.value is None
    assert "does not reveal a sum" in str(reply.error) or "not offered" in str(reply.error)


# ---- Participants and their keys ------------------------------------------------------------------------------------


def test_a_cohort_below_the_minimum_is_rejected(server: MaliciousServer) -> None:
    public_keys = server.advertise()
    two = {client: public_keys[client] for client in server.clients[:2]}
    server.expect_error(server.clients[0], "share", ShareRequest(two), "takes part in sums of at least 3")


def test_each_client_has_its_own_minimum() -> None:
    server = MaliciousServer(secagg(min_clients=6))
    server.expect_error(server.clients[0], "share", ShareRequest(server.advertise()), "sums of at least 6")


def test_a_client_rejects_a_list_without_its_own_keys(server: MaliciousServer) -> None:
    public_keys = server.advertise()
    first, second, *_ = server.clients
    other_key = AgreementKey(os.urandom(32)).public
    changed = {**public_keys, first: replace(public_keys[first], mask_key=other_key)}
    server.expect_error(first, "share", ShareRequest(changed), "own keys are missing or changed")
    missing = {client: keys for client, keys in public_keys.items() if client != second}
    server.expect_error(second, "share", ShareRequest(missing), "own keys are missing or changed")


@pytest.mark.parametrize("key", ["encryption_key", "mask_key", "signing_key"])
def test_the_same_key_for_two_clients_is_rejected(server: MaliciousServer, key: str) -> None:
    public_keys = server.advertise()
    first, second, third, *_ = server.clients
    doubled = {**public_keys, third: replace(public_keys[third], **{key: getattr(public_keys[second], key)})}
    server.expect_error(first, "share", ShareRequest(doubled), "same")


def test_a_client_uploads_nothing_with_too_few_shares(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client, peer = server.clients[:2]
    request = UploadRequest({peer: shares[client][peer]})
    server.expect_error(client, "upload", request, "before anything is uploaded")


def test_a_share_for_another_client_is_rejected(server: MaliciousServer) -> None:
    shares = server.run_to_share()
    client, peer, other = server.clients[:3]
    swapped = {**shares[client], peer: shares[other][peer]}
    server.expect_error(client, "upload", UploadRequest(swapped), f"share from {peer} was not encrypted")


@pytest.mark.parametrize("payload", [None, 3, "x", {"a": 1}])
@pytest.mark.parametrize("stage", ["share", "upload", "confirm", "reveal"])
def test_a_payload_of_the_wrong_type_is_rejected(stage: str, payload: Any) -> None:
    server = MaliciousServer(secagg())
    earlier_stages = {
        "share": server.advertise,
        "upload": server.run_to_share,
        "confirm": server.run_to_upload,
        "reveal": server.run_to_confirm,
    }
    earlier_stages[stage]()
    is_dict_of_signatures = stage == "reveal" and isinstance(payload, dict)
    error = "have signed the list" if is_dict_of_signatures else "It is rejected"
    server.expect_error(server.clients[0], stage, payload, error)


# ---- Identities -----------------------------------------------------------------------------------------------------


def make_server_with_identities(folder: Path, clients: int = 4) -> MaliciousServer:
    identities = Identities(str(folder))
    for client in make_vectors(clients):
        identities.create(client, os.urandom)
    return MaliciousServer(secagg(identities=str(folder)), clients)


def test_clients_with_identities_can_sum(tmp_path: Path) -> None:
    server = make_server_with_identities(tmp_path)
    signatures = server.run_to_confirm()
    assert all(server.call(client, "reveal", signatures) for client in signatures)


def test_an_invented_client_is_detected(tmp_path: Path) -> None:
    server = make_server_with_identities(tmp_path)
    public_keys = server.advertise()
    first, second, *_ = server.clients
    encryption_key, mask_key = AgreementKey(os.urandom(32)).public, AgreementKey(os.urandom(32)).public
    signing_key = SigningKey(os.urandom(32))
    statement = key_statement(0, TOPIC, second, encryption_key, mask_key)
    invented = PublicKeys(encryption_key, mask_key, signing_key.public, signing_key.sign(statement))
    server.expect_error(first, "share", ShareRequest({**public_keys, second: invented}), "not the one on file")


def test_changed_keys_and_keys_of_an_earlier_round_are_detected(tmp_path: Path) -> None:
    server = make_server_with_identities(tmp_path)
    earlier_keys, public_keys = server.advertise(), server.advertise()
    first, second, third, _ = server.clients
    error = "not signed by it for this sum"
    changed = replace(public_keys[second], encryption_key=AgreementKey(os.urandom(32)).public)
    server.expect_error(first, "share", ShareRequest({**public_keys, second: changed}), error)
    later_keys = {client: server.send(client, "advertise", TOPIC, round=1).value for client in server.clients}
    replayed = {**later_keys, second: earlier_keys[second]}
    server.expect_error(third, "share", ShareRequest(replayed), error, round=1)
