"""Every codec keeps its word: on how far off it is, and on how many bytes travel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.elsewhere import DEVICE, Away, elsewhere

from motet.codecs import CODECS, CodecChain, int4, int8, top_k
from motet.codecs.chain import EncodedParams
from motet.core.errors import ConfigError, RunError, WireError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.weighted import Weighted
from motet.wire import deserialize, measure_size, serialize

CHAINS = {
    **{name: (maker(),) for name, maker in CODECS.items()},
    "int8 nearest": (int8("nearest"),),
    "int4 nearest": (int4("nearest"),),
    "top_k, int8": (top_k(0.1), int8()),
    "top_k, int4": (top_k(0.3), int4("nearest")),
    "top_k of all, float16": (top_k(1.0), CODECS["float16"]()),
}
each = pytest.mark.parametrize("name", CHAINS)
shapes = st.lists(st.sampled_from([(), (1,), (7,), (5, 3), (2, 3, 4), (0, 4), (33, 16)]), min_size=1, max_size=4)


def params(shapes: list[tuple[int, ...]], size: float, number: int) -> Params:
    """Numbers of very different sizes in one model, and some zeros."""
    rng = torch.Generator().manual_seed(number)
    tensors = {f"t{i}": torch.randn(s, generator=rng) * size * 10.0 ** (-i) for i, s in enumerate(shapes)}
    return Params.from_tensors(
        {n: torch.where(t.abs() < 0.2 * size * 10.0 ** (-i), 0, t) for i, (n, t) in enumerate(tensors.items())}
    )


@each
@settings(max_examples=60, deadline=None)
@given(shapes=shapes, size=st.sampled_from([1e-12, 1e-4, 1.0, 300.0]), number=st.integers(0, 10**6))
def test_the_error_and_the_bytes_are_what_was_stated(
    name: str, shapes: list[tuple[int, ...]], size: float, number: int
) -> None:
    chain, value = CodecChain(CHAINS[name]), params(shapes, size, number)
    if not value.layout.size:
        return
    coded = chain.encode(Weighted(value, 3.0), Seed(number))
    back = chain.decode(deserialize(serialize(coded)))
    assert back.weight == 3.0
    assert (back.value - value).norm() <= chain.error(value, Seed(number))
    assert measure_size(coded).payload == chain.size(value.layout)


@each
def test_the_same_seed_gives_the_same_bytes_and_nothing_passed_in_changes(name: str) -> None:
    chain, value = CodecChain(CHAINS[name]), params([(33, 16), (7,)], 1.0, 5)
    before = value.flat.clone()
    first, second = (serialize(chain.encode(value, Seed(3).derive("up"))) for _ in range(2))
    assert first == second
    assert torch.equal(value.flat, before)


@pytest.mark.parametrize("maker", [int8, int4])
def test_stochastic_rounding_is_right_on_average_and_draws_anew(maker: Any) -> None:
    chain, value = CodecChain((maker(),)), Params.from_tensors({"w": torch.tensor([[1.0, 0.333, -0.05, 0.0]])})
    backs = torch.stack([chain.decode(chain.encode(value, Seed(i))).flat for i in range(2000)])
    step = 1 / CHAINS[maker.__name__][0].top  # type: ignore[attr-defined]
    assert (backs.mean(0) - value.flat).abs().max() < 5 * step / 2 / 2000**0.5
    assert backs.std(0)[1] > 0
    assert (backs[:, 3] == 0).all()  # nothing stays nothing
    assert (backs[:, 0] == 1).all()  # the largest of a row is exact


def test_every_row_has_its_own_scale() -> None:
    value = Params.from_tensors({"w": torch.tensor([[1e4, 2e4], [1e-4, 2e-4]])})
    back = CodecChain((int8("nearest"),)).decode(CodecChain((int8("nearest"),)).encode(value))
    assert torch.allclose(back["w"], value["w"], rtol=0.01)


def test_integers_are_much_smaller_than_floats() -> None:
    layout = params([(768, 768)], 1.0, 0).layout
    assert CodecChain((int8(),)).size(layout) == 768 * 768 + 4 * 768
    assert CodecChain((int4(),)).size(layout) == 768 * 768 // 2 + 4 * 768
    assert CodecChain((top_k(0.01), int8())).size(layout) == 5 * 5899 + 4  # a byte and a place each, one scale


def test_top_k_keeps_the_largest_and_owes_the_rest() -> None:
    chain = CodecChain((top_k(0.5),))
    update = Params.from_tensors({"w": torch.tensor([3.0, -1.0, 0.5, -4.0])})
    coded, owed = chain.encode_owing(update, (), Seed(0))
    assert chain.decode(coded).flat.tolist() == [3.0, 0.0, 0.0, -4.0]
    assert owed[0].flat.tolist() == [0.0, -1.0, 0.5, 0.0]
    coded, owed = chain.encode_owing(Params.from_tensors({"w": torch.tensor([0.1, -1.0, 1.0, 0.2])}), owed, Seed(0))
    assert chain.decode(coded).flat.tolist() == pytest.approx([0.0, -2.0, 1.5, 0.0])
    assert owed[0].flat.tolist() == pytest.approx([0.1, 0.0, 0.0, 0.2])


@given(number=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_with_feedback_nothing_is_ever_lost(number: int) -> None:
    """What has arrived and what is still owed is what was sent, through rounding too."""
    chain, owed = CodecChain((top_k(0.2), int4())), tuple[Params, ...]()
    sent = arrived = params([(5, 3), (7,)], 0.0, 0)
    for step in range(6):
        update = params([(5, 3), (7,)], 1.0, number + step)
        coded, owed = chain.encode_owing(update, owed, Seed(number).derive(step))
        sent, arrived = sent + update, arrived + chain.decode(coded)
    assert (sent - arrived - owed[0]).norm() < 1e-5


def test_counts_and_empty_parameters_are_left_alone() -> None:
    chain = CodecChain((top_k(), int8()))
    counts, nothing = Params.from_scalars(hits=123457), Params.from_tensors({})
    assert chain.encode(counts) is counts
    assert chain.encode(nothing) is nothing


def test_chains_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="int8 must be the last"):
        CodecChain((int8(), CODECS["float16"]()))
    with pytest.raises(ConfigError, match=r"top_k\.share is 1\.5"):
        top_k(1.5)


def test_numbers_a_codec_cannot_hold_are_said() -> None:
    with pytest.raises(RunError, match="float16 cannot hold numbers as large as 1e\\+06"):
        CodecChain((CODECS["float16"](),)).encode(Params.from_tensors({"w": torch.tensor([1.0, 1e6])}))
    with pytest.raises(RunError, match="int8 was given numbers that are not finite"):
        CodecChain((int8(),)).encode(Params.from_tensors({"w": torch.tensor([1.0, float("nan")])}))


def test_what_comes_over_the_wire_is_looked_at() -> None:
    chain = CodecChain((top_k(0.5),))
    good: EncodedParams = chain.encode(Params.from_tensors({"w": torch.ones(4)}))
    for body, beside, says in [
        (good.body, torch.tensor([1, 9], dtype=torch.int32), "places 1 to 9 came; expected 0 to 3"),
        (good.body, torch.tensor([-1, 1], dtype=torch.int32), "places -1 to 1 came"),
        (good.body[:1], good.beside[0], "expected \\[2\\]"),
        (good.body, None, "nothing came"),
        (good.body.double(), good.beside[0], "float64 came"),
    ]:
        with pytest.raises(WireError, match=says):
            chain.decode(EncodedParams(good.layout, body, (beside,)))
    with pytest.raises(WireError, match="through 0 codecs"):
        chain.decode(EncodedParams(good.layout, good.body, ()))
    grid = CodecChain((int8(),))
    made: EncodedParams = grid.encode(Params.from_tensors({"w": torch.ones(4)}))
    with pytest.raises(WireError, match="a scale came that is not finite"):
        grid.decode(EncodedParams(made.layout, made.body, (torch.tensor([float("inf")]),)))


@each
def test_a_codec_computes_where_its_numbers_are(name: str) -> None:
    chain, value = CodecChain(CHAINS[name]), params([(33, 16), (7,)], 1.0, 5)
    coded, owed = chain.encode_owing(value, (), Seed(3))
    with elsewhere() as away:
        there = Params(value.layout, away(value.flat.clone()))
        sent, debts = chain.encode_owing(there, (), Seed(3))
        back, bound = chain.decode(sent), chain.error(there, Seed(3))
    assert serialize(sent) == serialize(coded)
    assert isinstance(back.flat, Away)
    assert torch.equal(back.flat.cpu(), chain.decode(coded).flat)
    assert torch.equal(debts[0].flat.cpu(), owed[0].flat)
    assert bound == pytest.approx(chain.error(value, Seed(3)))


def test_a_device_that_is_not_there_refuses_what_is_at_home() -> None:
    with elsewhere() as away:
        with pytest.raises(RuntimeError, match="two devices"):
            away(torch.ones(3)).add_(torch.ones(3))
        with pytest.raises(RuntimeError, match="generator of another device"):
            torch.rand(3, generator=Seed(1).torch(), device=DEVICE)
        assert not isinstance(away(torch.ones(3)).to("cpu"), Away)
