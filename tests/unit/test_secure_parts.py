"""The parts secure sums are made of: a field, shares of secrets, keys, masks, integers, a ring."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from motet.codecs.fixed_point import DOUBLE_RANGE, FixedPoint, center_residues
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.rng import Seed
from motet.secure import crypto as keys
from motet.secure import masks
from motet.secure.coded_masking import CodedMasking
from motet.secure.crypto import (
    AgreementKey,
    SigningKey,
    decrypt_blocks,
    encrypt,
    is_valid_public_key,
    random_source,
    verify_signature,
)
from motet.secure.identities import Identities
from motet.secure.mask_graph import CompleteGraph, RingGraph, choose_degree, is_connected, threshold_count
from motet.secure.masks import BLOCK, FieldMask, add_field_mask, add_mask, subtract_mask
from motet.secure.participants import PublicKeys, SumParticipants
from motet.secure.prime_field import BLOCK_COLUMNS, FIELD, PrimeField
from motet.secure.shamir import recover_secrets, split_secrets

PRIME = FIELD.prime


def drawn(*shape: int, below: int = PRIME) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, shape, dtype=np.uint32)


# ---- the field --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prime", [97, PRIME])
def test_products_are_those_of_exact_integers(prime: int) -> None:
    left, right = drawn(5, 40, below=prime), drawn(40, 9, below=prime)
    left[0, :], right[:, 0] = prime - 1, prime - 1  # the largest there are
    exact = (left.astype(object) @ right.astype(object)) % prime
    assert (PrimeField(prime).product(left, right) == exact).all()


@pytest.mark.parametrize("terms", [1, 2, 31, 32, 33, 64, 681, 682, 683, 2047, 2048])
def test_the_largest_product_is_exact_however_it_is_cut_into_limbs(terms: int) -> None:
    worst = np.full((1, terms), PRIME - 1, np.uint32)
    assert FIELD.product(worst, worst.T)[0, 0] == terms * (PRIME - 1) ** 2 % PRIME
    odd = np.full((1, terms), PRIME - 2, np.uint32)  # whose low limb is odd, so that a bit lost at 2⁵³ would show
    assert FIELD.product(odd, worst.T)[0, 0] == terms * (PRIME - 2) * (PRIME - 1) % PRIME


@pytest.mark.parametrize("prime", [2, 3, 97, 65_521, 2**31 - 19, PRIME])
@pytest.mark.parametrize("columns", [1, BLOCK_COLUMNS - 1, BLOCK_COLUMNS, BLOCK_COLUMNS + 1])
def test_products_at_the_edges_are_those_of_pythons_integers(prime: int, columns: int) -> None:
    """All pairs of the smallest, middle and largest elements there are, in blocks that are full and not."""
    edges = sorted({k % prime for k in (0, 1, 2, prime // 2, prime // 2 + 1, -2, -1)})
    rows = list(itertools.product(edges, repeat=2))
    right = [[edges[(at + k) % len(edges)] for at in range(columns)] for k in range(2)]
    found = PrimeField(prime).product(np.array(rows, np.uint32), [np.array(row, np.uint32) for row in right])
    wanted = [[(a * x + b * y) % prime for x, y in zip(*right, strict=True)] for a, b in rows]
    assert found.tolist() == wanted


def test_a_product_over_too_many_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="not be exact"):
        FIELD.product(np.zeros((1, 2049), np.uint32), np.zeros((2049, 1), np.uint32))


@pytest.mark.parametrize("prime", [2, 97, PRIME])
def test_adding_and_subtracting_are_exact_for_every_pair_of_edges(prime: int) -> None:
    edges = sorted({0, 1, prime // 2, prime - 1})
    first, second = np.array(list(itertools.product(edges, repeat=2)), np.uint32).T.copy()
    total, rest = first.copy(), first.copy()
    PrimeField(prime).add(total, second)
    PrimeField(prime).subtract(rest, second)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    assert total.tolist() == [(a + b) % prime for a, b in pairs]
    assert rest.tolist() == [(a - b) % prime for a, b in pairs]


def test_adding_and_subtracting_stay_in_the_field() -> None:
    first, second = drawn(200_000), drawn(200_000)[::-1].copy()
    first[:2], second[:2] = (PRIME - 1, 0), (PRIME - 1, 0)
    total = first.copy()
    FIELD.add(total, second)
    assert (total == (first.astype(np.uint64) + second) % PRIME).all()
    FIELD.subtract(total, second)
    assert (total == first).all()


def test_a_polynomial_is_known_everywhere_from_as_many_values_as_it_has_coefficients() -> None:
    coefficients = drawn(4, 1)
    at = lambda points: FIELD.product(FIELD.powers(points, 4), coefficients)  # noqa: E731
    assert (FIELD.product(FIELD.interpolation([3, 9, 4, 7], [0, 100]), at([3, 9, 4, 7])) == at([0, 100])).all()


def test_random_elements_are_below_the_prime_even_when_the_bytes_are_not() -> None:
    drawings = iter([b"\xff" * 8 + b"\x01\0\0\0", b"\xff" * 4 + b"\x02\0\0\0", b"\x03\0\0\0"])
    assert FIELD.random(lambda _: next(drawings), 3).tolist() == [3, 2, 1]


# ---- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (3, 2), (5, 3), (5, 5)])
def test_any_enough_shares_give_the_secrets_back(holders: int, threshold: int) -> None:
    secrets = [os.urandom(32), bytes(32), b"\xff" * 32]
    shares = split_secrets(secrets, holders, threshold, os.urandom)
    for some in itertools.combinations(range(holders), threshold):
        assert recover_secrets({k: shares[k] for k in some}, threshold) == secrets


def test_too_few_shares_are_refused_and_fit_every_secret_equally_well() -> None:
    shares = split_secrets([bytes(32)], 5, 3, os.urandom)
    with pytest.raises(ValueError, match="cannot give back"):
        recover_secrets({k: shares[k] for k in range(2)}, 3)
    # with two shares of three, a third that leads to any other secret exists: here it is
    known = {0: shares[0].reshape(1, -1), 1: shares[1].reshape(1, -1)}
    secret = np.arange(9, dtype=np.uint32).reshape(1, -1)
    third = FIELD.product(FIELD.interpolation([0, 1, 2], [3]), np.concatenate([secret, known[0], known[1]]))
    back = FIELD.product(FIELD.interpolation([1, 2, 3], [0]), np.concatenate([known[0], known[1], third]))
    assert (back == secret).all()


def test_a_share_of_the_same_secret_is_another_every_time() -> None:
    first, second = (split_secrets([bytes(32)], 3, 2, os.urandom) for _ in range(2))
    assert (first != second).all()


# ---- keys and masks -----------------------------------------------------------------------------------------------------


def test_two_clients_agree_on_what_a_third_does_not_know_and_on_something_else_for_every_purpose() -> None:
    one, two, three = (AgreementKey(os.urandom(32)) for _ in range(3))
    assert one.agreed(two.public, "a") == two.agreed(one.public, "a")
    found = {
        one.agreed(two.public, "a"),
        one.agreed(two.public, "b"),
        one.agreed(three.public, "a"),
        two.agreed(three.public, "a"),
    }
    assert len(found) == 4


SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),  # −1
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),  # of order eight
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),  # of order eight
    (2**255 - 19).to_bytes(32, "little"),  # zero, written otherwise
]


@pytest.mark.parametrize("public", [b"", b"short", *SMALL_ORDER])
def test_a_public_key_that_is_none_is_refused(public: bytes) -> None:
    with pytest.raises(PrivacyError, match="cannot agree"):
        AgreementKey(os.urandom(32)).agreed(public, "a")
    assert not is_valid_public_key(public)
    assert is_valid_public_key(AgreementKey(os.urandom(32)).public)


def test_a_public_key_says_nothing_of_the_secret_one() -> None:
    key = AgreementKey(os.urandom(32))
    assert key.public != key.secret


def opened(*box: Any) -> bytes:
    return b"".join(map(bytes, decrypt_blocks(*box)))


@pytest.mark.parametrize("size", [0, 5, keys.BLOCK - 1, keys.BLOCK, 2 * keys.BLOCK + 3])
def test_what_was_sealed_opens_for_the_right_key_and_matter_only(size: int) -> None:
    key, text = os.urandom(32), os.urandom(size)
    sealed = encrypt(key, text, b"sum 1")
    assert opened(key, sealed, b"sum 1", "anna") == text
    assert AESGCM(key).decrypt(bytes(12), bytes(sealed.numpy()), b"sum 1") == text
    for wrong in (
        (os.urandom(32), sealed, b"sum 1"),
        (key, torch.cat([sealed[:-1], sealed[-1:] ^ 1]), b"sum 1"),
        (key, torch.cat([sealed[:1] ^ 1, sealed[1:]]), b"sum 1"),
        (key, sealed[:-1], b"sum 1"),
        (key, sealed, b"sum 2"),
        (key, sealed[:3], b"sum 1"),
        (key, sealed[:0], b"sum 1"),
        (key, sealed.float(), b"sum 1"),
        (key, sealed.reshape(1, -1), b"sum 1"),
        (key, bytes(sealed.numpy()), b"sum 1"),
    ):
        with pytest.raises(PrivacyError, match="anna"):
            opened(*wrong, "anna")


def test_signatures_hold_for_what_was_signed_only() -> None:
    signer = SigningKey(os.urandom(32))
    assert verify_signature(signer.public, b"list", signer.sign(b"list"))
    assert not verify_signature(signer.public, b"another", signer.sign(b"list"))
    assert not verify_signature(b"none", b"list", b"none")


def test_secrets_come_from_the_system_unless_a_simulation_is_seeded() -> None:
    assert random_source(None) is os.urandom
    seed = Seed(3).derive("anna")
    assert random_source(seed)(32) == random_source(seed)(32)
    assert random_source(seed)(32) != random_source(Seed(3).derive("ben"))(32)
    assert random_source(seed)(32) != random_source(Seed(4).derive("anna"))(32)


@pytest.mark.parametrize("size", [0, 1, BLOCK // 4 - 1, BLOCK // 4, BLOCK // 2 + 7])
def test_a_mask_that_is_put_on_comes_off(size: int) -> None:
    key, before = os.urandom(32), drawn(size, below=2**32 - 1)
    words = before.copy()
    add_mask(words, key)
    assert size == 0 or (words != before).mean() > 0.99
    subtract_mask(words, key)
    assert (words == before).all()


def test_a_mask_does_not_depend_on_how_long_the_vector_is() -> None:
    key = os.urandom(32)
    short, long = np.zeros(10, np.uint32), np.zeros(BLOCK, np.uint32)
    add_mask(short, key)
    add_mask(long, key)
    assert (short == long[:10]).all()


def field_mask(key: bytes, *sizes: int, place: int = 0) -> np.ndarray:
    """Elements from some place on, asked for in pieces."""
    mask, pieces = FieldMask(key, place), [np.empty(size, np.uint32) for size in sizes]
    for piece in pieces:
        mask.into(piece)
    return np.concatenate(pieces)


@pytest.mark.parametrize(("prime", "block"), [(PRIME, BLOCK), (5, 2**14)])  # of 5, three draws in eight are no element
def test_a_mask_in_the_field_is_the_same_in_whatever_pieces_and_uniform(
    prime: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "FIELD", PrimeField(prime))
    monkeypatch.setattr(masks, "BLOCK", block)
    key, size = os.urandom(32), 2 * block // 4 + 11
    whole = field_mask(key, size)
    assert (whole == field_mask(key, 3, 0, block // 4, size - 3 - block // 4)).all()
    for place in (1, 2, 3, 4, 1000, block // 4 - 1):
        assert (whole[place:] == field_mask(key, size - place, place=place)).all()
    counts = np.bincount((whole.astype(np.uint64) * 5 // prime).astype(int))
    assert len(counts) == 5  # all below the prime
    assert float(((counts - size / 5) ** 2 / (size / 5)).sum()) < 30  # four degrees of freedom
    words = np.arange(size, dtype=np.uint32) % 5
    added = words.copy()
    add_field_mask(added, key)
    assert (added == (words.astype(np.uint64) + whole) % prime).all()


def test_other_keys_give_other_masks_in_the_field() -> None:
    first, second = (field_mask(os.urandom(32), 1000) for _ in range(2))
    assert (first != second).mean() > 0.99


def test_every_bit_of_a_key_matters() -> None:
    """A generator that folds its key to 32 bits gives one mask to very many keys."""
    seen = set()
    for bit in range(256):
        words = np.zeros(4, np.uint32)
        add_mask(words, (1 << bit).to_bytes(32, "little"))
        seen.add(words.tobytes())
    folded = np.zeros(4, np.uint32)
    add_mask(folded, ((1 << 0) | (1 << 32) | (1 << 64)).to_bytes(32, "little"))
    seen.add(folded.tobytes())
    assert len(seen) == 257


# ---- integers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modulus", [2**32, PRIME])
@pytest.mark.parametrize("clients", [1, 3, 10, 100, 4000])
def test_the_largest_sum_there_can_be_does_not_wrap(clients: int, modulus: int) -> None:
    numbers = FixedPoint(range=4.0)
    for sign in (1, -1):
        words = numbers.encode(torch.full((5,), sign * 4.0), 1.0, clients, modulus, np.random.default_rng(0)).astype(
            object
        )
        total = (words * clients % modulus).astype(np.uint32)
        assert numbers.decode(total, False, clients, modulus).tolist() == [sign * 4.0 * clients] * 5
    whole = numbers.encode(
        torch.full((3,), DOUBLE_RANGE, dtype=torch.float64), 1.0, clients, modulus, np.random.default_rng(0)
    )
    total = (whole.astype(object) * clients % modulus).astype(np.uint32)
    assert numbers.decode(total, True, clients, modulus).tolist() == [DOUBLE_RANGE * clients] * 3


@pytest.mark.parametrize("modulus", [2**32, PRIME])
@pytest.mark.parametrize("clients", [1, 10])
def test_words_are_the_residues_of_whole_numbers_on_both_sides_of_zero(clients: int, modulus: int) -> None:
    numbers = FixedPoint(range=4.0)
    base = numbers.base(clients, modulus)
    ends = [0.0, -0.0, 4.0, -4.0, 4.0 / base, -4.0 / base, 2.0, -2.0]
    whole = [round(x / 4.0 * base) for x in ends]
    words = numbers.encode(torch.tensor(ends), 1.0, clients, modulus, np.random.default_rng(0))
    assert words.tolist() == [w % modulus for w in whole]
    assert numbers.decode(words, False, clients, modulus).tolist() == ends
    edges = [0, 1, modulus // 2 - 1, modulus // 2 + 1, modulus - 1]
    assert center_residues(np.array(edges, np.uint32), modulus).tolist() == [
        e if e < modulus / 2 else e - modulus for e in edges
    ]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_not_finite_are_refused_wherever_they_stand(number: float, dtype: torch.dtype) -> None:
    for at in (0, 517, 999):
        given = torch.zeros(1000, dtype=dtype)
        given[at] = number
        with pytest.raises(RunError, match="not finite"):
            FixedPoint(outside="clip").encode(given, 1.0, 10, 2**32, np.random.default_rng(0))


@pytest.mark.parametrize("bits", [4, 12, None])
def test_rounding_is_unbiased_and_off_by_less_than_a_step(bits: int | None) -> None:
    numbers = FixedPoint(range=2.0, bits=bits)
    step = numbers.step(10, 2**32)
    given = torch.full((200_000,), 0.7 * step + 1.0)
    words = numbers.encode(given, 1.0, 10, 2**32, np.random.default_rng(0))
    back = numbers.decode(words, False, 10, 2**32)
    assert float((back - given).abs().max()) < step * (1 + 1e-6) + 2**-23  # a float32 is itself rounded
    if bits is not None:
        assert abs(float((back - given.double()).mean())) < 5 * step / np.sqrt(12 * len(given)) + 2**-23


def test_whole_numbers_of_double_precision_are_exact() -> None:
    numbers, given = FixedPoint(), torch.tensor([0.0, 1.0, 113.0, -7.0, 16_000_000.0], dtype=torch.float64)
    for modulus in (2**32, PRIME):
        words = numbers.encode(given, 1.0, 50, modulus, np.random.default_rng(0))
        assert torch.equal(numbers.decode(words, True, 50, modulus), given)


def test_what_does_not_fit_is_refused_before_it_is_masked_and_not_told() -> None:
    numbers, rng = FixedPoint(range=1.0), np.random.default_rng(0)
    with pytest.raises(PrivacyError, match=r"outside ±1, .* raise secure.range") as refused:
        numbers.encode(torch.tensor([0.0, 17.5]), 1.0, 10, 2**32, rng)
    assert "17" not in str(refused.value)
    with pytest.raises(RunError, match="not finite"):
        numbers.encode(torch.tensor([float("nan")]), 1.0, 10, 2**32, rng)
    clipped = FixedPoint(range=1.0, outside="clip")
    words = clipped.encode(torch.tensor([17.5, -17.5]), 1.0, 10, 2**32, rng)
    assert clipped.decode(words, False, 10, 2**32).tolist() == [1.0, -1.0]


def test_bits_that_leave_no_room_for_the_sum_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"could wrap .* at most 25 fit"):
        FixedPoint(bits=30).base(100, 2**32)
    with pytest.raises(ConfigError, match="2 to 31"):
        FixedPoint(bits=40)
    with pytest.raises(ConfigError, match="above 0"):
        FixedPoint(range=0.0)


# ---- the ring -----------------------------------------------------------------------------------------------------------


def circle_of(count: int) -> SumParticipants:
    names = [f"c{k:03d}" for k in range(count)]
    return SumParticipants(0, "a.b", {n: PublicKeys(n.encode(), n.encode(), n.encode(), b"") for n in names})


def test_neighbours_are_mutual_and_everybody_has_as_many() -> None:
    ring, circle = RingGraph(6, 0.0, 0.5), circle_of(20)
    near = {c: set(ring.holders(circle, c)) for c in circle.members}
    assert all(len(n) == 7 and c in n for c, n in near.items())
    assert all(c in near[other] for c, n in near.items() for other in n)
    assert is_connected(ring, circle, circle.members)


def test_two_wide_gaps_in_the_ring_are_seen() -> None:
    ring, circle = RingGraph(4, 0.0, 0.5), circle_of(20)
    seats = {seat: client for client, seat in circle.seats.items()}
    one_gap = [seats[k] for k in range(20) if k not in (3, 4)]
    two_gaps = [seats[k] for k in range(20) if k not in (3, 4, 11, 12)]
    assert is_connected(ring, circle, one_gap)
    assert not is_connected(ring, circle, two_gaps)
    assert is_connected(CompleteGraph(), circle, two_gaps)


def test_a_small_cohort_is_everybodys_neighbour() -> None:
    circle = circle_of(5)
    assert set(RingGraph(None, 0.3, 0.5).holders(circle, "c001")) == set(circle.members)


def test_the_order_of_the_ring_is_nobodys_choice() -> None:
    circle = circle_of(30)
    other = SumParticipants(0, "a.b", {**circle.hellos, "c000": PublicKeys(b"new", b"new", b"new", b"")})
    assert list(circle.seats) != sorted(circle.seats)
    assert list(circle.seats) != list(other.seats)


def test_the_degree_stands_the_drop_outs_it_is_chosen_for() -> None:
    clients, dropouts = 200, 0.3
    degree = choose_degree(clients, dropouts, 0.5)
    assert degree % 2 == 0
    assert degree < clients / 2
    assert degree > choose_degree(clients, 0.1, 0.5) > 2
    rng, seen = np.random.default_rng(0), Counter[bool]()
    size = degree + 1
    for _ in range(300):
        left = np.ones(clients, bool)
        left[rng.choice(clients, int(dropouts * clients), replace=False)] = False
        around = sum(np.roll(left, k).astype(int) for k in range(-(degree // 2), degree // 2 + 1))
        seen[bool((around >= threshold_count(size, 0.5)).all())] += 1
    assert seen[True] == 300


@pytest.mark.parametrize(
    ("holders", "threshold", "expected"), [(5, 0.5, 3), (6, 0.5, 4), (10, 2 / 3, 7), (3, 2 / 3, 3), (1, 0.5, 1)]
)
def test_more_than_the_share_is_needed(holders: int, threshold: float, expected: int) -> None:
    assert threshold_count(holders, threshold) == expected


# ---- identities ---------------------------------------------------------------------------------------------------------


def test_identities_lie_in_files_of_which_the_secret_half_is_the_owners_alone(tmp_path) -> None:  # type: ignore[no-untyped-def]
    files = Identities(str(tmp_path / "who"))
    files.create("anna", os.urandom)
    known = files.known(["anna"])
    assert known == {"anna": files.signer("anna", os.urandom).public}
    assert (tmp_path / "who" / "anna.key").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="is there already"):
        files.create("anna", os.urandom)
    with pytest.raises(ConfigError, match=r"ben.key holds no key"):
        files.signer("ben", os.urandom)
    with pytest.raises(ConfigError, match="cannot be the name"):
        files.known(["../anna"])
    assert Identities().known(["anna"]) is None


@pytest.mark.parametrize("lengths", [(5, 8), (8, 5), (8, 12)])
def test_shares_that_are_not_as_long_as_one_another_are_refused_in_a_sentence(lengths: tuple[int, int]) -> None:
    shares = {name: bytes(length) for name, length in zip("ab", lengths, strict=True)}
    with pytest.raises(RunError, match="differ in size"):
        CodedMasking(0.5, 0.7).answer(shares, lambda name: [memoryview(shares[name])], tuple(shares))
