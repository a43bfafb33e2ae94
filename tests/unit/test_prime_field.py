"""Arithmetic in the prime field is exact, and Shamir's shares recover their secrets."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from motet.secure.prime_field import BLOCK_COLUMNS, FIELD, PrimeField
from motet.secure.shamir import recover_secrets, split_secrets

PRIME = FIELD.prime


def random_elements(*shape: int, below: int = PRIME) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, shape, dtype=np.uint32)


@pytest.mark.parametrize("prime", [97, PRIME])
def test_a_matrix_product_is_exact(prime: int) -> None:
    left, right = random_elements(5, 40, below=prime), random_elements(40, 9, below=prime)
    left[0, :], right[:, 0] = prime - 1, prime - 1  # the largest elements
    exact = (left.astype(object) @ right.astype(object)) % prime
    assert (PrimeField(prime).product(left, right) == exact).all()


@pytest.mark.parametrize("terms", [1, 2, 31, 32, 33, 64, 681, 682, 683, 2047, 2048])
def test_the_largest_product_is_exact_for_every_number_of_limbs(terms: int) -> None:
    largest = np.full((1, terms), PRIME - 1, np.uint32)
    assert FIELD.product(largest, largest.T)[0, 0] == terms * (PRIME - 1) ** 2 % PRIME
    odd = np.full((1, terms), PRIME - 2, np.uint32)  # its low limb is odd, so a bit lost at 2⁵³ would show
    assert FIELD.product(odd, largest.T)[0, 0] == terms * (PRIME - 2) * (PRIME - 1) % PRIME


@pytest.mark.parametrize("prime", [2, 3, 97, 65_521, 2**31 - 19, PRIME])
@pytest.mark.parametrize("columns", [1, BLOCK_COLUMNS - 1, BLOCK_COLUMNS, BLOCK_COLUMNS + 1])
def test_products_of_edge_cases_are_exact(prime: int, columns: int) -> None:
    """All pairs of the smallest, middle and largest elements, in full and partial blocks."""
    edges = sorted({k % prime for k in (0, 1, 2, prime // 2, prime // 2 + 1, -2, -1)})
    left = list(itertools.product(edges, repeat=2))
    right = [[edges[(column + k) % len(edges)] for column in range(columns)] for k in range(2)]
    product = PrimeField(prime).product(np.array(left, np.uint32), [np.array(row, np.uint32) for row in right])
    assert product.tolist() == [[(a * x + b * y) % prime for x, y in zip(*right, strict=True)] for a, b in left]


def test_a_product_with_too_many_terms_is_rejected() -> None:
    with pytest.raises(ValueError, match="not be exact"):
        FIELD.product(np.zeros((1, 2049), np.uint32), np.zeros((2049, 1), np.uint32))


@pytest.mark.parametrize("prime", [2, 97, PRIME])
def test_sums_and_differences_of_edge_cases_are_exact(prime: int) -> None:
    edges = sorted({0, 1, prime // 2, prime - 1})
    first, second = np.array(list(itertools.product(edges, repeat=2)), np.uint32).T.copy()
    total, difference = first.copy(), first.copy()
    PrimeField(prime).add(total, second)
    PrimeField(prime).subtract(difference, second)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    assert total.tolist() == [(a + b) % prime for a, b in pairs]
    assert difference.tolist() == [(a - b) % prime for a, b in pairs]


def test_long_vectors_are_added_and_subtracted_exactly() -> None:
    first, second = random_elements(200_000), random_elements(200_000)[::-1].copy()
    first[:2], second[:2] = (PRIME - 1, 0), (PRIME - 1, 0)
    total = first.copy()
    FIELD.add(total, second)
    assert (total == (first.astype(np.uint64) + second) % PRIME).all()
    FIELD.subtract(total, second)
    assert (total == first).all()


def test_interpolation_gives_the_values_of_a_polynomial_at_other_points() -> None:
    coefficients = random_elements(4, 1)

    def evaluate(points: list[int]) -> np.ndarray:
        return FIELD.product(FIELD.powers(points, 4), coefficients)

    known, targets = [3, 9, 4, 7], [0, 100]
    assert (FIELD.product(FIELD.interpolation(known, targets), evaluate(known)) == evaluate(targets)).all()


def test_random_numbers_above_the_prime_are_drawn_again() -> None:
    draws = iter([b"\xff" * 8 + b"\x01\0\0\0", b"\xff" * 4 + b"\x02\0\0\0", b"\x03\0\0\0"])
    assert FIELD.random(lambda _: next(draws), 3).tolist() == [3, 2, 1]


# ---- Shamir's secret sharing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (3, 2), (5, 3), (5, 5)])
def test_any_threshold_of_shares_recovers_the_secrets(holders: int, threshold: int) -> None:
    secrets = [os.urandom(32), bytes(32), b"\xff" * 32]
    shares = split_secrets(secrets, holders, threshold, os.urandom)
    for positions in itertools.combinations(range(holders), threshold):
        assert recover_secrets({k: shares[k] for k in positions}, threshold) == secrets


def test_fewer_shares_are_rejected_and_fit_every_secret() -> None:
    shares = split_secrets([bytes(32)], 5, 3, os.urandom)
    with pytest.raises(ValueError, match="cannot recover"):
        recover_secrets({k: shares[k] for k in range(2)}, 3)
    # For two shares of three, construct the third share that leads to another secret.
    first, second = shares[0].reshape(1, -1), shares[1].reshape(1, -1)
    secret = np.arange(9, dtype=np.uint32).reshape(1, -1)
    third = FIELD.product(FIELD.interpolation([0, 1, 2], [3]), np.concatenate([secret, first, second]))
    recovered = FIELD.product(FIELD.interpolation([1, 2, 3], [0]), np.concatenate([first, second, third]))
    assert (recovered == secret).all()


def test_the_same_secret_gets_new_shares_every_time() -> None:
    first, second = (split_secrets([bytes(32)], 3, 2, os.urandom) for _ in range(2))
    assert (first != second).all()
