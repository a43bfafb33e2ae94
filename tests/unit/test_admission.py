"""Admission checks each client's identity, recipe and group before it may take part."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.networks import MemoryLink, make_admission, make_join_request

from motet.transport import pending_links
from motet.transport.admission import ClientReady, JoinAccepted, hash_token
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

FINGERPRINTS = {"letters": "fingerprint of letters", "reports": "fingerprint of reports"}


def test_a_client_joins_the_group_that_it_names() -> None:
    new_clients: list[tuple[str, str]] = []
    admission = make_admission(
        "north",
        group_fingerprints=FINGERPRINTS,
        capacity=2,
        on_new_client=lambda client, group, _: new_clients.append((client, group)),
    )
    assert admission.rejection_reason(make_join_request("north", group="letters")) is None
    assert admission.rejection_reason(make_join_request("south", group="reports")) is None
    admission.confirm(("north", "south"))
    assert admission.rejection_reason(make_join_request("south", group="reports")) is None  # it reconnects
    admission.confirm(("south",))
    assert new_clients == [("north", "letters"), ("south", "reports")]
    assert admission.expected_fingerprint("north") == "fingerprint of letters"
    assert admission.expected_fingerprint("south") == "fingerprint of reports"


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("", "choose one: --group letters or --group reports"),
        ("letter", "choose one"),
        ("reports", "is in group 'letters' and cannot change to 'reports'"),
    ],
)
def test_an_unknown_group_or_a_change_of_group_is_rejected(group: str, message: str) -> None:
    admission = make_admission("north", group_fingerprints=FINGERPRINTS, client_groups={"north": "letters"})
    assert message in str(admission.rejection_reason(make_join_request("north", group=group)))
    assert admission.client_groups == {"north": "letters"}


def test_a_group_is_rejected_in_a_run_without_groups() -> None:
    admission = make_admission("north")
    assert "leave --group out" in str(admission.rejection_reason(make_join_request("north", group="letters")))
    assert admission.rejection_reason(make_join_request("north")) is None
    assert admission.expected_fingerprint("north") == "fingerprint"


def test_a_mistyped_group_can_be_corrected_until_the_fingerprint_is_confirmed() -> None:
    new_clients: list[tuple[str, str]] = []
    admission = make_admission(
        group_fingerprints=FINGERPRINTS,
        capacity=1,
        on_new_client=lambda client, group, _: new_clients.append((client, group)),
    )
    assert admission.rejection_reason(make_join_request("north", group="reports")) is None
    assert admission.expected_fingerprint("north") == "fingerprint of reports"
    assert new_clients == []  # the client sees that its labels do not belong to this group, and disconnects
    assert admission.rejection_reason(make_join_request("north", group="letters")) is None
    reason = admission.rejection_reason(make_join_request("south", group="letters"))
    assert "is not a client of this run" in str(reason)  # the capacity is reserved for north
    admission.confirm(("north",))
    assert new_clients == [("north", "letters")]
    assert "is in group 'letters'" in str(admission.rejection_reason(make_join_request("north", group="reports")))


def test_simultaneous_join_requests_do_not_exceed_the_capacity() -> None:
    class SlowDict(dict[str, str]):
        def __ior__(self, other: Any) -> Any:
            time.sleep(0.002)  # so that the other requests are checked in the meantime
            return super().__ior__(other)

    admission = make_admission(capacity=3, claimed_groups=SlowDict())
    with ThreadPoolExecutor(8) as pool:
        requests = [make_join_request(f"client-{k}") for k in range(8)]
        reasons = list(pool.map(admission.rejection_reason, requests))
    assert reasons.count(None) == 3
    assert len(admission.claimed_groups) == 3


# ---- Without a list of clients --------------------------------------------------------------------------------------


def test_a_name_cannot_be_taken_over_by_a_client_with_another_token() -> None:
    bindings: list[tuple[str, str]] = []
    admission = make_admission(
        capacity=2, on_new_client=lambda client, _, token_hash: bindings.append((client, token_hash))
    )
    assert admission.rejection_reason(make_join_request("north", token="secret")) is None
    assert "is taken" in str(admission.rejection_reason(make_join_request("north", token="other")))  # it is joining
    assert admission.confirm(("north",))
    admission.release(("north",))
    assert "is taken" in str(admission.rejection_reason(make_join_request("north", token="other")))
    assert admission.rejection_reason(make_join_request("north", token="secret")) is None
    assert bindings == [("north", hash_token("secret"))]
    resumed = make_admission("north", bound_tokens=dict(bindings))
    assert "is taken" in str(resumed.rejection_reason(make_join_request("north", token="other")))


def test_a_certificate_proves_a_name_without_the_token() -> None:
    admission = make_admission("north", bound_tokens={"north": hash_token("lost")})
    assert admission.rejection_reason(make_join_request("north", token="new"), certified_name="north") is None
    assert "your certificate is for 'south'" in str(
        admission.rejection_reason(make_join_request("north", token="lost"), certified_name="south")
    )


def test_a_client_that_leaves_before_it_is_ready_gives_its_place_back() -> None:
    connections = Connections(make_admission(capacity=1))
    squatter = MemoryLink(connections)
    squatter.send(OutgoingMessage.from_value(make_join_request("squatter", token="x")))
    client = MemoryLink(connections)
    client.send(OutgoingMessage.from_value(make_join_request("north", token="y")))
    assert "is not a client of this run" in deserialize(client.receive(5) or b"").reason
    squatter.close()
    client = MemoryLink(connections)
    client.send(OutgoingMessage.from_value(make_join_request("north", token="y")))
    assert isinstance(deserialize(client.receive(5) or b""), JoinAccepted)
    client.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    assert connections.connected_clients() == ["north"]


def test_a_client_that_never_becomes_ready_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_links, "READY_TIMEOUT", 0.05)
    connections = Connections(make_admission(capacity=1))
    squatter = MemoryLink(connections)
    connections.on_connect(squatter.server_end)
    squatter.send(OutgoingMessage.from_value(make_join_request("squatter", token="x")))
    assert isinstance(deserialize(squatter.receive(5) or b""), JoinAccepted)
    with pytest.raises(ConnectionError):
        squatter.receive(30)
    assert connections.admission.rejection_reason(make_join_request("north", token="y")) is None


def test_a_client_has_at_most_one_link_on_which_it_is_not_ready() -> None:
    connections = Connections(make_admission("north"))
    links = [MemoryLink(connections) for _ in range(3)]
    for link in links:
        link.send(OutgoingMessage.from_value(make_join_request("north")))
    assert [link.is_cut for link in links] == [True, True, False]
    links[2].send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    assert connections.connected_clients() == ["north"]


# ---- Revoked clients ------------------------------------------------------------------------------------------------


def join_with_token(connections: Connections, client: str, token: str) -> MemoryLink:
    link = MemoryLink(connections)
    link.send(OutgoingMessage.from_value(make_join_request(client, token=token)))
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    return link


def test_a_revoked_client_is_cut_off_while_the_server_runs() -> None:
    token_hashes = {"north": hash_token("n"), "south": hash_token("s")}
    connections = Connections(make_admission(*token_hashes, token_hashes=token_hashes))
    north, south = join_with_token(connections, "north", "n"), join_with_token(connections, "south", "s")
    connections.send(Request(1, "north", 0, "p.m", None))
    del token_hashes["north"]
    north.send(OutgoingMessage.from_value(Reply(1, "north", 7.0)))  # it was working when it was revoked
    reply = connections.receive(5)
    assert reply is not None and (reply.value, reply.error) == (None, "no longer allowed")
    connections.send(Request(2, "north", 0, "p.m", None))
    reply = connections.receive(5)
    assert reply is not None and (reply.id, reply.error) == (2, "no longer allowed")
    assert (north.is_cut, south.is_cut) == (True, False)
    assert "is not on the server's list" in str(
        connections.admission.rejection_reason(make_join_request("north", token="n"))
    )


def test_a_rotated_token_replaces_the_old_one() -> None:
    token_hashes = {"north": hash_token("old")}
    connections = Connections(make_admission("north", token_hashes=token_hashes))
    link = join_with_token(connections, "north", "old")
    token_hashes["north"] = hash_token("new")
    connections.send(Request(1, "north", 0, "p.m", None))
    assert link.is_cut
    join_with_token(connections, "north", "new")
    assert connections.connected_clients() == ["north"]
    assert not connections.admission.is_revoked("north")


def test_a_list_from_which_everybody_was_revoked_allows_nobody() -> None:
    admission = make_admission("north", capacity=3, token_hashes={})
    assert "is not on the server's list" in str(admission.rejection_reason(make_join_request("north", token="n")))
