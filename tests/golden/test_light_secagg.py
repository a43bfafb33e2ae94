"""LightSecAgg by hand: four users, one colluder, three survivors, in the field of 97 elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from motet.secure.light_secagg_masking import encode_shares, recover_pieces
from motet.secure.prime_field import PrimeField

FIELD = PrimeField(97)
MASKS = [(1, 2, 3, 4), (10, 20, 30, 40), (5, 6, 7, 8), (90, 91, 92, 93)]
RANDOM_PIECES = [(11, 12), (13, 14), (15, 16), (17, 18)]
INPUTS = [(1, -1, 2, 0), (3, 3, 3, 3), (0, 1, 0, -2), (2, 2, 2, 2)]
SURVIVORS = (0, 1, 3)


def to_elements(*rows: tuple[int, ...]) -> np.ndarray:
    return (np.array(rows) % 97).astype(np.uint32)


def make_reader(piece: np.ndarray) -> Callable[[np.ndarray], None]:
    """Return a function that fills an array with the next elements of a piece."""
    elements = iter(piece.tolist())

    def fill(array: np.ndarray) -> None:
        array[:] = list(islice(elements, array.size))

    return fill


def test_the_encoding_matrix_is_the_lagrange_basis_at_five_six_seven() -> None:
    assert FIELD.interpolation([5, 6, 7], [1, 2, 3, 4]).tolist() == [[15, 73, 10], [10, 82, 6], [6, 89, 3], [3, 94, 1]]


def test_the_sum_of_the_survivors_is_recovered_in_one_step() -> None:
    shares = []
    for mask, random_piece in zip(MASKS, RANDOM_PIECES, strict=True):
        pieces = to_elements(mask[:2], mask[2:], random_piece)
        shares.append(encode_shares(FIELD, [make_reader(piece) for piece in pieces], 2, 4))
    total, answers = np.zeros(4, np.uint32), {}
    for user in SURVIVORS:
        upload = to_elements(INPUTS[user])[0]
        FIELD.add(upload, to_elements(MASKS[user])[0])
        FIELD.add(total, upload)
        answers[user] = np.zeros(2, np.uint32)
        for other in SURVIVORS:
            FIELD.add(answers[user], shares[other][user])
    assert total.tolist() == [10, 20, 35, 45]
    assert {user: answer.tolist() for user, answer in answers.items()} == {0: [89, 11], 1: [60, 18], 3: [66, 69]}
    mask_sum = recover_pieces(FIELD, answers, 4, 2)
    assert mask_sum.tolist() == [4, 16, 28, 40]
    FIELD.subtract(total, mask_sum)
    assert total.tolist() == [6, 4, 7, 5]
