"""The ring of SecAgg+ is symmetric, cannot be chosen, and tolerates the dropouts it is built for."""

from __future__ import annotations

import numpy as np
import pytest

from motet.secure.mask_graph import CompleteGraph, RingGraph, choose_degree, is_connected, threshold_count
from motet.secure.participants import PublicKeys, SumParticipants


def make_participants(count: int) -> SumParticipants:
    clients = [f"c{k:03d}" for k in range(count)]
    return SumParticipants(0, "a.b", {client: make_keys(client.encode()) for client in clients})


def make_keys(key: bytes) -> PublicKeys:
    return PublicKeys(encryption_key=key, mask_key=key, signing_key=key, signature=b"")


def test_neighbors_are_mutual_and_equally_many() -> None:
    ring, participants = RingGraph(6, 0.0, 0.5), make_participants(20)
    neighbors = {client: set(ring.share_holders(participants, client)) for client in participants.clients}
    assert all(len(group) == 7 and client in group for client, group in neighbors.items())
    assert all(client in neighbors[other] for client, group in neighbors.items() for other in group)
    assert is_connected(ring, participants, participants.clients)


def test_two_wide_gaps_disconnect_the_ring() -> None:
    ring, participants = RingGraph(4, 0.0, 0.5), make_participants(20)
    by_position = {position: client for client, position in participants.ring_positions.items()}
    one_gap = [by_position[k] for k in range(20) if k not in (3, 4)]
    two_gaps = [by_position[k] for k in range(20) if k not in (3, 4, 11, 12)]
    assert is_connected(ring, participants, one_gap)
    assert not is_connected(ring, participants, two_gaps)
    assert is_connected(CompleteGraph(), participants, two_gaps)


def test_in_a_small_cohort_all_clients_are_neighbors() -> None:
    participants = make_participants(5)
    assert set(RingGraph(None, 0.3, 0.5).share_holders(participants, "c001")) == set(participants.clients)


def test_the_order_of_the_ring_changes_with_every_key() -> None:
    participants = make_participants(30)
    changed = SumParticipants(0, "a.b", {**participants.public_keys, "c000": make_keys(b"new")})
    assert list(participants.ring_positions) != sorted(participants.ring_positions)
    assert list(participants.ring_positions) != list(changed.ring_positions)


def test_the_degree_tolerates_the_dropouts_that_it_is_chosen_for() -> None:
    clients, dropouts = 200, 0.3
    degree = choose_degree(clients, dropouts, 0.5)
    assert degree % 2 == 0
    assert degree < clients / 2
    assert degree > choose_degree(clients, 0.1, 0.5) > 2
    rng = np.random.default_rng(0)
    for _ in range(300):
        survives = np.ones(clients, bool)
        survives[rng.choice(clients, int(dropouts * clients), replace=False)] = False
        reach = range(-(degree // 2), degree // 2 + 1)
        surviving_neighbors = sum(np.roll(survives, k).astype(int) for k in reach)
        assert (surviving_neighbors >= threshold_count(degree + 1, 0.5)).all()


@pytest.mark.parametrize(
    ("holders", "threshold", "expected"), [(5, 0.5, 3), (6, 0.5, 4), (10, 2 / 3, 7), (3, 2 / 3, 3), (1, 0.5, 1)]
)
def test_more_than_the_threshold_must_answer(holders: int, threshold: float, expected: int) -> None:
    assert threshold_count(holders, threshold) == expected
