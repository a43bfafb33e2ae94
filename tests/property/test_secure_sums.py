"""Whichever clients are lost in whichever stage, the server gets the exact sum of the others, or an error and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.sums import TOLERANT, exact_mean, make_secure_transport, make_vectors, run_sum, secure_mean

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.script import ClientId, rewrite_sums
from motet.core.weighted import Weighted
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.client_session import STAGES
from motet.secure.protocol import SecureSum
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply

PROTOCOLS = {name: make_sum for name, make_sum in SECURE.items() if name != "none"}
with_every_protocol = pytest.mark.parametrize("name", PROTOCOLS)
THREE_OF_FIVE: dict[str, dict[str, float]] = {  # options with which three of five clients must finish
    "secagg": {"threshold": 0.5},
    "secagg_plus": {},
    "light_secagg": {"threshold": 0.6, "colluders": 0.4},
}
Replies = list[tuple[str, Reply]]  # with their stage


def make_exact_vectors(count: int) -> dict[ClientId, Weighted]:
    """Vectors of multiples of the fixed-point step, so that the secure sum is exact."""
    numbers = torch.arange(5, dtype=torch.float32) / 4 - 0.5
    return {
        f"c{k:02d}": Weighted(Params.from_tensors({"x": numbers * (1 + k % 3)}), float(2 ** (k % 4)))
        for k in range(count)
    }


def sum_with_losses(
    vectors: Mapping[ClientId, Weighted], secure: SecureSum, lost_in: Mapping[ClientId, str]
) -> tuple[Weighted | None, Replies]:
    """Return the mean, or None if the sum failed, and all replies. `lost_in` is the stage in which a reply is lost."""
    program, transport = make_secure_transport(
        vectors, secure, is_lost=lambda client, stage: lost_in.get(client) == stage
    )
    try:
        return run_sum(rewrite_sums(secure, program.round()), Mailbox(transport, TOLERANT)), transport.replies
    except RunError as error:
        assert any(word in str(error) for word in ("hidden", "revealed", "replied")), error
        return None, transport.replies


def expected_clients(
    clients: Iterable[ClientId], lost_in: Mapping[ClientId, str], secure: SecureSum
) -> set[ClientId] | None:
    """Return the clients in the sum, if all are neighbors; None if too few are left after any stage."""
    left = [c for c in clients if lost_in.get(c) != "advertise"]
    needed, in_sum = max(3, secure.masking.threshold_count(max(1, len(left)))), set[ClientId]()
    for stage in STAGES:
        left = [c for c in left if lost_in.get(c) != stage]
        if len(left) < needed:
            return None
        if stage == "upload":
            in_sum = set(left)
    return in_sum


def check_losses(name: str, lost_in: Mapping[ClientId, str], vectors: Mapping[ClientId, Weighted]) -> bool:
    """Check the result for one pattern of losses. Return whether the sum succeeded."""
    secure: SecureSum = PROTOCOLS[name](**THREE_OF_FIVE[name])
    mean, replies = sum_with_losses(vectors, secure, lost_in)
    clients = expected_clients(vectors, lost_in, secure)
    assert (mean is None) == (clients is None), lost_in
    if mean is None or clients is None:
        revealed = sum(stage == "reveal" and reply.error is None for stage, reply in replies)
        assert revealed < 3, "too few clients must have revealed their shares to open the sum"
        return False
    value, weight = exact_mean(vectors, clients)
    assert torch.equal(mean.value.flat, value.float()), lost_in
    assert mean.weight == weight
    return True


@with_every_protocol
def test_all_patterns_of_losses_in_upload_and_reveal_among_five_clients(name: str) -> None:
    vectors = make_exact_vectors(5)
    succeeded = [
        check_losses(name, dict(zip(vectors, stages, strict=True)), vectors)
        for stages in itertools.product(("", "upload", "reveal"), repeat=5)
    ]
    assert succeeded.count(True) == 1 + 5 * 2 + 10 * 4  # at most two of five are lost
    assert len(succeeded) == 3**5


@with_every_protocol
@pytest.mark.parametrize("stage", ["advertise", "share", "confirm"])
def test_all_sets_of_losses_in_one_other_stage_among_five_clients(name: str, stage: str) -> None:
    vectors = make_exact_vectors(5)
    for stages in itertools.product(("", stage), repeat=5):
        check_losses(name, dict(zip(vectors, stages, strict=True)), vectors)


@with_every_protocol
@pytest.mark.parametrize("seed", [0, 1])
def test_fifty_clients_with_random_losses_in_any_stage(name: str, seed: int) -> None:
    vectors, rng = make_exact_vectors(50), np.random.default_rng(seed)
    lost = rng.choice(list(vectors), 12, replace=False)
    lost_in = {str(client): str(rng.choice(STAGES)) for client in lost}
    mean, _ = sum_with_losses(vectors, PROTOCOLS[name](), lost_in)
    assert mean is not None
    in_sum = [client for client in vectors if lost_in.get(client) not in STAGES[:3]]
    value, weight = exact_mean(vectors, in_sum)
    torch.testing.assert_close(mean.value.flat, value.float(), rtol=0, atol=2e-6)
    assert mean.weight == weight


@with_every_protocol
def test_too_many_losses_end_the_sum_and_reveal_nothing(name: str) -> None:
    vectors = make_exact_vectors(50)
    lost_in = dict.fromkeys(list(vectors)[:30], "upload")
    mean, replies = sum_with_losses(vectors, PROTOCOLS[name](), lost_in)
    assert mean is None
    assert not [reply for stage, reply in replies if stage == "reveal" and reply.error is None]


@with_every_protocol
def test_a_client_with_a_late_upload_is_not_in_the_sum_and_stays_masked(name: str) -> None:
    """Its upload may still reach the server. It stays masked, because no client reveals shares of its seed."""
    vectors = {client: Weighted(w.value.zeros_like(), w.weight) for client, w in make_exact_vectors(5).items()}
    late = next(iter(vectors))
    _, replies = sum_with_losses(vectors, PROTOCOLS[name](**THREE_OF_FIVE[name]), {late: "upload"})
    assert [stage for stage, reply in replies if reply.client == late] == ["advertise", "share"]


# ---- What the server sees
# -----------------------------------------------------------------------------------------------


def collect_uploads(secure: SecureSum, vectors: Mapping[ClientId, Weighted]) -> dict[ClientId, np.ndarray]:
    _, transport = secure_mean(vectors, secure)
    uploads = [reply for stage, reply in transport.replies if stage == "upload"]
    return {reply.client: reply.value.words.numpy().view(np.uint32) for reply in uploads}


def chi_squared(counts: np.ndarray) -> float:
    return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())


@with_every_protocol
def test_a_masked_vector_of_zeros_looks_uniformly_random(name: str) -> None:
    size = 200_000
    vectors = {f"c{k}": Weighted(Params.from_tensors({"x": torch.zeros(size)}), 1.0) for k in range(3)}
    secure = PROTOCOLS[name]()
    uploads = collect_uploads(secure, vectors)
    modulus = secure.masking.modulus
    for words in uploads.values():
        high_bits = np.bincount((words.astype(np.uint64) * 256 // modulus).astype(int), minlength=256)
        low_bits = np.bincount(words & 255, minlength=256)
        for counts in (high_bits, low_bits):
            assert 150 < chi_squared(counts) < 370  # 255 degrees of freedom, five standard deviations
        centered = words.astype(np.float64) / modulus - 0.5
        assert abs(centered.mean()) < 5 / np.sqrt(12 * size)
        assert abs(float(centered[:-1] @ centered[1:]) / size * 12) < 5 / np.sqrt(size)
    first, second, _ = (words.astype(np.float64) / modulus - 0.5 for words in uploads.values())
    assert abs(float(first @ second) / size * 12) < 5 / np.sqrt(size)  # two uploads are not correlated


@with_every_protocol
def test_the_same_vector_gets_new_masks_in_every_sum(name: str) -> None:
    vectors = make_vectors(3)
    first, second = (collect_uploads(PROTOCOLS[name](), vectors) for _ in range(2))
    assert all((first[client] != second[client]).mean() > 0.9 for client in vectors)


@with_every_protocol
def test_a_seeded_simulation_repeats_to_the_byte(name: str) -> None:
    vectors = make_vectors(3)
    first, second = (collect_uploads(PROTOCOLS[name](seeded=True), vectors) for _ in range(2))
    assert all((first[client] == second[client]).all() for client in vectors)
    assert not (first["client-000"] == first["client-001"]).all()


def test_a_masked_vector_does_not_show_its_weight() -> None:
    _, transport = secure_mean(make_vectors(3), secagg())
    for stage, reply in transport.replies:
        if stage == "upload":
            assert vars(reply.value).keys() == {"layout", "is_double", "words"}
            assert reply.value.words.numel() == 7 + 2
            assert reply.value.words.dtype == torch.int32


# ---- Accuracy
# -----------------------------------------------------------------------------------------------------------


@with_every_protocol
@pytest.mark.parametrize("bits", [None, 10])
def test_the_error_of_a_sum_is_below_one_step_per_client(name: str, bits: int | None) -> None:
    vectors = make_vectors(9, size=3000)
    secure = PROTOCOLS[name](bits=bits, max_weight=16.0)
    mean, _ = secure_mean(vectors, secure)
    value, weight = exact_mean(vectors, vectors)
    step = secure.encoding.fixed_point.step(len(vectors), secure.masking.modulus)
    bound = len(vectors) * step * secure.encoding.max_weight / weight
    error = float((mean.value.flat.double() - value).abs().max())
    assert error < bound + 1e-6
    if bits:
        assert error > bound / 50  # the bound is not trivial


@with_every_protocol
def test_float64_numbers_are_summed_in_float64(name: str) -> None:
    vectors = {f"c{k}": Weighted(Params.from_scalars(loss=2.0 + k, perplexity=1234.5678 * k), 1.0) for k in range(4)}
    mean, _ = secure_mean(vectors, PROTOCOLS[name]())
    assert mean.value.flat.dtype == torch.float64
    assert mean.value.flat.tolist() == pytest.approx([3.5, 1234.5678 * 1.5], abs=1e-6)


@pytest.mark.parametrize("make_sum", [secagg, secagg_plus, light_secagg])
def test_empty_vectors_still_sum_their_weights(make_sum: Any) -> None:
    vectors = {f"c{k}": Weighted(Params.from_tensors({}), 2.0) for k in range(3)}
    mean, _ = secure_mean(vectors, make_sum())
    assert (mean.weight, mean.value.flat.numel()) == (6.0, 0)


def test_a_weight_above_the_limit_is_rejected_with_the_option_to_change() -> None:
    vectors = {**make_vectors(3), "heavy": Weighted(Params.from_tensors({"x": torch.zeros(7)}), 5000.0)}
    _, transport = secure_mean(vectors, secagg())
    errors = [str(reply.error) for _, reply in transport.replies if reply.error]
    assert "secure.max_weight=1024" in errors[0]
