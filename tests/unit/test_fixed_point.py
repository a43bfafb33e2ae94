"""Fixed-point words add up without wrapping, and rounding is unbiased."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.codecs.fixed_point import DOUBLE_RANGE, FixedPoint, center_residues
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.secure.prime_field import FIELD

PRIME = FIELD.prime
with_every_modulus = pytest.mark.parametrize("modulus", [2**32, PRIME])


def make_rng() -> np.random.Generator:
    return np.random.default_rng(0)


@with_every_modulus
@pytest.mark.parametrize("clients", [1, 3, 10, 100, 4000])
def test_the_largest_sum_does_not_wrap(clients: int, modulus: int) -> None:
    fixed_point = FixedPoint(max_abs=4.0)
    for sign in (1, -1):
        words = fixed_point.encode(torch.full((5,), sign * 4.0), 1.0, clients, modulus, make_rng())
        total = (words.astype(object) * clients % modulus).astype(np.uint32)
        assert fixed_point.decode(total, clients, modulus, is_double=False).tolist() == [sign * 4.0 * clients] * 5
    doubles = torch.full((3,), DOUBLE_RANGE, dtype=torch.float64)
    words = fixed_point.encode(doubles, 1.0, clients, modulus, make_rng())
    total = (words.astype(object) * clients % modulus).astype(np.uint32)
    assert fixed_point.decode(total, clients, modulus, is_double=True).tolist() == [DOUBLE_RANGE * clients] * 3


@with_every_modulus
@pytest.mark.parametrize("clients", [1, 10])
def test_words_are_residues_of_signed_integers(clients: int, modulus: int) -> None:
    fixed_point = FixedPoint(max_abs=4.0)
    base = fixed_point.base(clients, modulus)
    numbers = [0.0, -0.0, 4.0, -4.0, 4.0 / base, -4.0 / base, 2.0, -2.0]
    integers = [round(x / 4.0 * base) for x in numbers]
    words = fixed_point.encode(torch.tensor(numbers), 1.0, clients, modulus, make_rng())
    assert words.tolist() == [integer % modulus for integer in integers]
    assert fixed_point.decode(words, clients, modulus, is_double=False).tolist() == numbers


@with_every_modulus
def test_residues_above_half_the_modulus_are_negative(modulus: int) -> None:
    residues = [0, 1, modulus // 2 - 1, modulus // 2 + 1, modulus - 1]
    signed = [r if r < modulus / 2 else r - modulus for r in residues]
    assert center_residues(np.array(residues, np.uint32), modulus).tolist() == signed


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("position", [0, 517, 999])
def test_numbers_that_are_not_finite_are_rejected(number: float, dtype: torch.dtype, position: int) -> None:
    numbers = torch.zeros(1000, dtype=dtype)
    numbers[position] = number
    with pytest.raises(RunError, match="not finite"):
        FixedPoint(out_of_range="clip").encode(numbers, 1.0, 10, 2**32, make_rng())


@pytest.mark.parametrize("bits", [4, 12, None])
def test_rounding_is_unbiased_and_off_by_less_than_a_step(bits: int | None) -> None:
    fixed_point = FixedPoint(max_abs=2.0, bits=bits)
    step, float32_rounding = fixed_point.step(10, 2**32), 2**-23
    numbers = torch.full((200_000,), 0.7 * step + 1.0)
    decoded = fixed_point.decode(fixed_point.encode(numbers, 1.0, 10, 2**32, make_rng()), 10, 2**32, is_double=False)
    assert float((decoded - numbers).abs().max()) < step * (1 + 1e-6) + float32_rounding
    if bits is not None:
        bias = abs(float((decoded - numbers.double()).mean()))
        assert bias < 5 * step / np.sqrt(12 * len(numbers)) + float32_rounding


@with_every_modulus
def test_whole_float64_numbers_are_exact(modulus: int) -> None:
    fixed_point, numbers = FixedPoint(), torch.tensor([0.0, 1.0, 113.0, -7.0, 16_000_000.0], dtype=torch.float64)
    words = fixed_point.encode(numbers, 1.0, 50, modulus, make_rng())
    assert torch.equal(fixed_point.decode(words, 50, modulus, is_double=True), numbers)


def test_a_number_out_of_range_is_rejected_without_revealing_it() -> None:
    with pytest.raises(PrivacyError, match=r"outside ±1, .* raise secure.range") as error:
        FixedPoint(max_abs=1.0).encode(torch.tensor([0.0, 17.5]), 1.0, 10, 2**32, make_rng())
    assert "17" not in str(error.value)


def test_a_number_out_of_range_can_be_clipped() -> None:
    fixed_point = FixedPoint(max_abs=1.0, out_of_range="clip")
    words = fixed_point.encode(torch.tensor([17.5, -17.5]), 1.0, 10, 2**32, make_rng())
    assert fixed_point.decode(words, 10, 2**32, is_double=False).tolist() == [1.0, -1.0]


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"could wrap .* use at most 25"):
        FixedPoint(bits=30).base(100, 2**32)
    with pytest.raises(ConfigError, match="2 to 31"):
        FixedPoint(bits=40)
    with pytest.raises(ConfigError, match="above 0"):
        FixedPoint(max_abs=0.0)
