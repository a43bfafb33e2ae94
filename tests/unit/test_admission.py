"""Admission checks each client's identity, recipe and group before it may take part."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.networks import make_admission, make_join_request

FINGERPRINTS = {"letters": "fingerprint of letters", "reports": "fingerprint of reports"}


def test_a_client_joins_the_group_that_it_names() -> None:
    new_clients: list[tuple[str, str]] = []
    admission = make_admission(
        "north",
        group_fingerprints=FINGERPRINTS,
        capacity=2,
        on_new_client=lambda client, group: new_clients.append((client, group)),
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
        on_new_client=lambda client, group: new_clients.append((client, group)),
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
