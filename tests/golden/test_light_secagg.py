"""LightSecAgg by hand: four users, one colluder, three survivors, in the field of 97 elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from motet.secure.coded_masking import encode_shares, recover_pieces
from motet.secure.prime_field import PrimeField

FIELD = PrimeField(97)
MASKS = [(1, 2, 3, 4), (10, 20, 30, 40), (5, 6, 7, 8), (90, 91, 92, 93)]
HIDING = [(11, 12), (13, 14), (15, 16), (17, 18)]
INPUTS = [(1, -1, 2, 0), (3, 3, 3, 3), (0, 1, 0, -2), (2, 2, 2, 2)]
LEFT = (0, 1, 3)  # user 3 drops


def words(*rows: tuple[int, ...]) -> np.ndarray:
    return (np.array(rows) % 97).astype(np.uint32)


def read_out(row: np.ndarray) -> Callable[[np.ndarray], None]:
    """A piece that is called for its elements."""
    left = iter(row.tolist())

    def into(some: np.ndarray) -> None:
        some[:] = list(islice(left, some.size))

    return into


def test_the_encoding_is_the_lagrange_basis_at_five_six_seven() -> None:
    assert FIELD.interpolation([5, 6, 7], [1, 2, 3, 4]).tolist() == [[15, 73, 10], [10, 82, 6], [6, 89, 3], [3, 94, 1]]


def test_the_sum_over_those_who_are_left_is_recovered_in_one_step() -> None:
    shares = [
        encode_shares(FIELD, [read_out(piece) for piece in words(mask[:2], mask[2:], hiding)], 2, 4)
        for mask, hiding in zip(MASKS, HIDING, strict=True)
    ]
    total, answers = np.zeros(4, np.uint32), {}
    for user in LEFT:
        upload = words(INPUTS[user])[0]
        FIELD.add(upload, words(MASKS[user])[0])
        FIELD.add(total, upload)
        answers[user] = np.zeros(2, np.uint32)
        for other in LEFT:
            FIELD.add(answers[user], shares[other][user])
    assert total.tolist() == [10, 20, 35, 45]
    assert {u: a.tolist() for u, a in answers.items()} == {0: [89, 11], 1: [60, 18], 3: [66, 69]}
    mask = recover_pieces(FIELD, answers, 4, 2)
    assert mask.tolist() == [4, 16, 28, 40]
    FIELD.subtract(total, mask)
    assert total.tolist() == [6, 4, 7, 5]
