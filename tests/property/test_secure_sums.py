"""Whoever is lost, and whenever: the sum over those who finished, exactly; or a clear end, and nothing revealed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.sums import Line, mean, summed, vectors

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.script import ClientId
from motet.core.weighted import Weighted
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.client_session import STAGES
from motet.secure.protocol import SecureSum

PROTOCOLS = {name: make for name, make in SECURE.items() if name != "none"}
every = pytest.mark.parametrize("name", PROTOCOLS)
FIVE = {
    "secagg": {"threshold": 0.5},
    "secagg_plus": {},
    "light_secagg": {"threshold": 0.6, "privacy": 0.4},
}  # three of five


def whole(count: int) -> dict[ClientId, Weighted]:
    """Vectors whose sum must come out exactly: multiples of every step there is."""
    numbers = torch.arange(5, dtype=torch.float32) / 4 - 0.5
    return {
        f"c{k:02d}": Weighted(Params.from_tensors({"x": numbers * (1 + k % 3)}), float(2 ** (k % 4)))
        for k in range(count)
    }


def played(
    given: Mapping[ClientId, Weighted], secure: SecureSum, lost: Mapping[ClientId, str]
) -> tuple[Weighted | None, Line]:
    """The sum, or None if it was given up; `lost` says in which stage a client's reply goes astray."""
    kept: list[Line] = []

    def gone(client: ClientId, stage: str) -> bool:
        return lost.get(client) == stage

    try:
        return summed(given, secure, kept=kept, lost=gone)
    except RunError as error:
        assert "hidden" in str(error) or "revealed" in str(error) or "answered" in str(error), error
        return None, kept[0]


def expected(clients: Iterable[ClientId], lost: Mapping[ClientId, str], secure: SecureSum) -> set[ClientId] | None:
    """Who must be in the sum, where all are neighbours; None if too few were left after any stage."""
    left = [c for c in clients if lost.get(c) != "advertise"]
    needed, members = max(3, secure.masking.threshold_count(max(1, len(left)))), set[ClientId]()
    for stage in STAGES:
        left = [c for c in left if lost.get(c) != stage]
        if len(left) < needed:
            return None
        if stage == "upload":
            members = set(left)
    return members


def check(name: str, pattern: Mapping[ClientId, str], given: Mapping[ClientId, Weighted]) -> bool:
    secure: SecureSum = PROTOCOLS[name](**FIVE[name])
    found, line = played(given, secure, pattern)
    members = expected(given, pattern, secure)
    assert (found is None) == (members is None), pattern
    if found is None or members is None:
        # what would open the sum was given out by too few to open it
        assert sum(stage == "reveal" and r.error is None for stage, r in line.replies) < 3
        return False
    value, weight = mean(given, members)
    assert torch.equal(found.value.flat, value.float()), pattern
    assert found.weight == weight
    return True


@every
def test_every_pattern_of_drop_outs_among_five_clients_in_the_stages_where_vectors_move(name: str) -> None:
    given = whole(5)
    ends = [
        check(name, dict(zip(given, p, strict=True)), given)
        for p in itertools.product(("", "upload", "reveal"), repeat=5)
    ]
    assert ends.count(True) == 1 + 5 * 2 + 10 * 4  # at most two of five are lost
    assert len(ends) == 3**5


@every
@pytest.mark.parametrize("stage", ["advertise", "share", "confirm"])
def test_every_set_of_five_clients_lost_in_one_stage(name: str, stage: str) -> None:
    given = whole(5)
    for some in itertools.product(("", stage), repeat=5):
        check(name, dict(zip(given, some, strict=True)), given)


@every
@pytest.mark.parametrize("seed", [0, 1])
def test_fifty_clients_of_whom_some_are_lost_in_any_stage(name: str, seed: int) -> None:
    given, rng = whole(50), np.random.default_rng(seed)
    gone = rng.choice(list(given), 12, replace=False)
    pattern = {str(c): str(rng.choice(STAGES)) for c in gone}
    secure = PROTOCOLS[name]()
    found, _ = played(given, secure, pattern)
    assert found is not None
    members = [c for c in given if pattern.get(c) not in STAGES[:3]]
    value, weight = mean(given, members)
    torch.testing.assert_close(found.value.flat, value.float(), rtol=0, atol=2e-6)
    assert found.weight == weight


@every
def test_too_many_lost_of_fifty_end_the_sum_and_nothing_is_revealed(name: str) -> None:
    given = whole(50)
    pattern = dict.fromkeys(list(given)[:30], "upload")
    found, line = played(given, PROTOCOLS[name](), pattern)
    assert found is None
    assert not [r for stage, r in line.replies if stage == "reveal" and r.error is None]


@every
def test_a_client_whose_reply_is_only_late_is_not_in_the_sum_and_cannot_be_read(name: str) -> None:
    """Its upload reaches the server after all; its own mask is still on it, for nobody gave shares of that seed."""
    given = {c: Weighted(w.value.zeros_like(), w.weight) for c, w in whole(5).items()}
    late = next(iter(given))
    _, line = played(given, PROTOCOLS[name](**FIVE[name]), {late: "upload"})
    stages = [stage for stage, r in line.replies if r.client == late]
    assert stages == ["advertise", "share"]


# ---- what the server sees -----------------------------------------------------------------------------------------------


def uploads(secure: SecureSum, given: Mapping[ClientId, Weighted]) -> dict[ClientId, np.ndarray]:
    _, line = summed(given, secure)
    return {r.client: r.value.words.numpy().view(np.uint32) for stage, r in line.replies if stage == "upload"}


@every
def test_a_masked_upload_looks_like_noise_even_of_zeros(name: str) -> None:
    size = 200_000
    given = {f"c{k}": Weighted(Params.from_tensors({"x": torch.zeros(size)}), 1.0) for k in range(3)}
    secure = PROTOCOLS[name]()
    seen = uploads(secure, given)
    top = secure.masking.modulus
    for words in seen.values():
        counts = np.bincount((words.astype(np.uint64) * 256 // top).astype(int), minlength=256)
        chi = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
        assert 150 < chi < 370  # 255 degrees of freedom: five deviations either way
        low = np.bincount(words & 255, minlength=256)
        assert 150 < float(((low - low.mean()) ** 2 / low.mean()).sum()) < 370
        centred = words.astype(np.float64) / top - 0.5
        assert abs(centred.mean()) < 5 / np.sqrt(12 * size)
        assert abs(float(centred[:-1] @ centred[1:]) / size * 12) < 5 / np.sqrt(size)
    a, b, _ = (w.astype(np.float64) / top - 0.5 for w in seen.values())
    assert abs(float(a @ b) / size * 12) < 5 / np.sqrt(size)  # nor do two of them go together


@every
def test_the_same_vector_is_masked_anew_in_every_sum(name: str) -> None:
    given = vectors(3)
    first, second = (uploads(PROTOCOLS[name](), given) for _ in range(2))
    assert all((first[c] != second[c]).mean() > 0.9 for c in given)


@every
def test_a_seeded_simulation_repeats_to_the_last_byte(name: str) -> None:
    given = vectors(3)
    first, second = (uploads(PROTOCOLS[name](seeded=True), given) for _ in range(2))
    assert all((first[c] == second[c]).all() for c in given)
    assert not (first["client-000"] == first["client-001"]).all()


def test_no_weight_travels_beside_the_masked_vector() -> None:
    given = vectors(3)
    _, line = summed(given, secagg())
    for stage, reply in line.replies:
        if stage == "upload":
            assert vars(reply.value).keys() == {"layout", "double", "words"}
            assert reply.value.words.numel() == 7 + 2
            assert reply.value.words.dtype == torch.int32


# ---- how near the sum is --------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("bits", [None, 10])
def test_the_sum_is_off_by_less_than_a_step_for_each_client(name: str, bits: int | None) -> None:
    given = vectors(9, size=3000)
    secure = PROTOCOLS[name](bits=bits, largest_weight=16.0)
    found, _ = summed(given, secure)
    value, weight = mean(given, list(given))
    bound = len(given) * secure.numbers.step(len(given), secure.masking.modulus) * secure.largest_weight / weight
    worst = float((found.value.flat.double() - value).abs().max())
    assert worst < bound + 1e-6
    if bits:
        assert worst > bound / 50  # and the bound is not idle


@every
def test_numbers_of_double_precision_are_summed_as_such(name: str) -> None:
    given = {f"c{k}": Weighted(Params.from_scalars(loss=2.0 + k, perplexity=1234.5678 * k), 1.0) for k in range(4)}
    found, _ = summed(given, PROTOCOLS[name]())
    assert found.value.flat.dtype == torch.float64
    assert found.value.flat.tolist() == pytest.approx([3.5, 1234.5678 * 1.5], abs=1e-6)


def test_an_empty_vector_is_a_sum_of_weights() -> None:
    given = {f"c{k}": Weighted(Params.from_tensors({}), 2.0) for k in range(3)}
    for make in (secagg, secagg_plus, light_secagg):
        found, _ = summed(given, make())
        assert (found.weight, found.value.flat.numel()) == (6.0, 0)


def test_a_reply_that_counts_too_much_is_refused_with_the_option_that_mends_it() -> None:
    given: dict[ClientId, Any] = {**vectors(3), "heavy": Weighted(Params.from_tensors({"x": torch.zeros(7)}), 5000.0)}
    _, line = summed(given, secagg())
    assert "secure.largest_weight=1024" in next(str(r.error) for stage, r in line.replies if r.error)
