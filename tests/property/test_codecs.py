"""Every codec keeps its error bound and its stated size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_device import DEVICE, FakeDeviceTensor, fake_device

from motet.codecs import CODECS, CodecChain, int4, int8, top_k
from motet.codecs.chain import EncodedParams
from motet.core.errors import ConfigError, RunError, WireError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.weighted import Weighted
from motet.wire import deserialize, measure_size, serialize

CHAINS = {
    **{name: (make_codec(),) for name, make_codec in CODECS.items()},
    "int8 nearest": (int8("nearest"),),
    "int4 nearest": (int4("nearest"),),
    "top_k, int8": (top_k(0.1), int8()),
    "top_k, int4": (top_k(0.3), int4("nearest")),
    "top_k of all, float16": (top_k(1.0), CODECS["float16"]()),
}
with_every_chain = pytest.mark.parametrize("name", CHAINS)
shape_lists = st.lists(st.sampled_from([(), (1,), (7,), (5, 3), (2, 3, 4), (0, 4), (33, 16)]), min_size=1, max_size=4)


def make_params(shapes: list[tuple[int, ...]], scale: float, seed: int) -> Params:
    """Tensors of very different scales, with some zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for i, shape in enumerate(shapes):
        tensor_scale = scale * 10.0 ** (-i)
        tensor = torch.randn(shape, generator=generator) * tensor_scale
        tensors[f"t{i}"] = torch.where(tensor.abs() < 0.2 * tensor_scale, 0, tensor)
    return Params.from_tensors(tensors)


@with_every_chain
@settings(max_examples=60, deadline=None)
@given(shapes=shape_lists, scale=st.sampled_from([1e-12, 1e-4, 1.0, 300.0]), seed=st.integers(0, 10**6))
def test_the_error_bound_and_the_size_hold(name: str, shapes: list[tuple[int, ...]], scale: float, seed: int) -> None:
    chain, params = CodecChain(CHAINS[name]), make_params(shapes, scale, seed)
    if not params.layout.size:
        return
    encoded = chain.encode(Weighted(params, 3.0), Seed(seed))
    decoded = chain.decode(deserialize(serialize(encoded)))
    assert decoded.weight == 3.0
    assert (decoded.value - params).norm() <= chain.error_bound(params, Seed(seed))
    assert measure_size(encoded).payload == chain.encoded_size(params.layout)


@with_every_chain
def test_the_same_seed_gives_the_same_bytes_and_the_input_is_unchanged(name: str) -> None:
    chain, params = CodecChain(CHAINS[name]), make_params([(33, 16), (7,)], 1.0, 5)
    before = params.flat.clone()
    first, second = (serialize(chain.encode(params, Seed(3).derive("up"))) for _ in range(2))
    assert first == second
    assert torch.equal(params.flat, before)


@pytest.mark.parametrize("make_codec", [int8, int4])
def test_stochastic_rounding_is_unbiased(make_codec: Any) -> None:
    codec = make_codec()
    chain, params = CodecChain((codec,)), Params.from_tensors({"w": torch.tensor([[1.0, 0.333, -0.05, 0.0]])})
    decoded = torch.stack([chain.decode(chain.encode(params, Seed(i))).flat for i in range(2000)])
    step = 1 / codec.max_level
    assert (decoded.mean(0) - params.flat).abs().max() < 5 * step / 2 / 2000**0.5
    assert decoded.std(0)[1] > 0
    assert (decoded[:, 3] == 0).all()  # zero stays zero
    assert (decoded[:, 0] == 1).all()  # the largest number of a row is exact


def test_every_row_has_its_own_scale() -> None:
    params = Params.from_tensors({"w": torch.tensor([[1e4, 2e4], [1e-4, 2e-4]])})
    chain = CodecChain((int8("nearest"),))
    assert torch.allclose(chain.decode(chain.encode(params))["w"], params["w"], rtol=0.01)


def test_the_size_of_a_matrix_is_as_documented() -> None:
    layout = make_params([(768, 768)], 1.0, 0).layout
    assert CodecChain((int8(),)).encoded_size(layout) == 768 * 768 + 4 * 768
    assert CodecChain((int4(),)).encoded_size(layout) == 768 * 768 // 2 + 4 * 768
    assert CodecChain((top_k(0.01), int8())).encoded_size(layout) == 5 * 5899 + 4  # a byte and an index each, one scale


def test_top_k_sends_the_largest_numbers_and_keeps_the_rest_as_residual() -> None:
    chain = CodecChain((top_k(0.5),))
    update = Params.from_tensors({"w": torch.tensor([3.0, -1.0, 0.5, -4.0])})
    encoded, residuals = chain.encode_with_feedback(update, (), Seed(0))
    assert chain.decode(encoded).flat.tolist() == [3.0, 0.0, 0.0, -4.0]
    assert residuals[0].flat.tolist() == [0.0, -1.0, 0.5, 0.0]
    update = Params.from_tensors({"w": torch.tensor([0.1, -1.0, 1.0, 0.2])})
    encoded, residuals = chain.encode_with_feedback(update, residuals, Seed(0))
    assert chain.decode(encoded).flat.tolist() == pytest.approx([0.0, -2.0, 1.5, 0.0])
    assert residuals[0].flat.tolist() == pytest.approx([0.1, 0.0, 0.0, 0.2])


def test_a_residual_is_added_to_the_layers_that_both_replies_have() -> None:
    chain = CodecChain((top_k(0.5),))
    first = Params.from_tensors({"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([3.0, 2.0])})
    _, residuals = chain.encode_with_feedback(first, (), Seed(0))
    second = Params.from_tensors({"b": torch.tensor([0.0, 5.0]), "c": torch.tensor([6.0, 0.0])})
    encoded, _ = chain.encode_with_feedback(second, residuals, Seed(0))
    assert chain.decode(encoded).tensors()["b"].tolist() == [0.0, 7.0]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_error_feedback_loses_nothing(seed: int) -> None:
    """Decoded updates plus the residual are the original updates, also with rounding."""
    chain, residuals = CodecChain((top_k(0.2), int4())), tuple[Params, ...]()
    sent = received = make_params([(5, 3), (7,)], 0.0, 0)
    for step in range(6):
        update = make_params([(5, 3), (7,)], 1.0, seed + step)
        encoded, residuals = chain.encode_with_feedback(update, residuals, Seed(seed).derive(step))
        sent, received = sent + update, received + chain.decode(encoded)
    assert (sent - received - residuals[0]).norm() < 1e-5


def test_counts_and_empty_parameters_pass_unchanged() -> None:
    chain = CodecChain((top_k(), int8()))
    counts, empty = Params.from_scalars(hits=123457), Params.from_tensors({})
    assert chain.encode(counts) is counts
    assert chain.encode(empty) is empty


def test_an_invalid_chain_is_rejected() -> None:
    with pytest.raises(ConfigError, match="int8 must be the last"):
        CodecChain((int8(), CODECS["float16"]()))
    with pytest.raises(ConfigError, match=r"top_k\.share is 1\.5"):
        top_k(1.5)


def test_numbers_that_a_codec_cannot_represent_are_rejected() -> None:
    with pytest.raises(RunError, match=r"float16 cannot represent numbers as large as 1e\+06"):
        CodecChain((CODECS["float16"](),)).encode(Params.from_tensors({"w": torch.tensor([1.0, 1e6])}))
    with pytest.raises(RunError, match="int8 got numbers that are not finite"):
        CodecChain((int8(),)).encode(Params.from_tensors({"w": torch.tensor([1.0, float("nan")])}))


def test_invalid_encoded_parameters_are_rejected() -> None:
    chain = CodecChain((top_k(0.5),))
    valid: EncodedParams = chain.encode(Params.from_tensors({"w": torch.ones(4)}))
    for body, side_info, message in [
        (valid.body, torch.tensor([1, 9], dtype=torch.int32), "indices 1 to 9; expected 0 to 3"),
        (valid.body, torch.tensor([-1, 1], dtype=torch.int32), "indices -1 to 1"),
        (valid.body[:1], valid.side_info[0], r"expected shape \[2\]"),
        (valid.body, None, "received nothing"),
        (valid.body.double(), valid.side_info[0], "received .* of torch.float64"),
    ]:
        with pytest.raises(WireError, match=message):
            chain.decode(EncodedParams(valid.layout, body, (side_info,)))
    with pytest.raises(WireError, match="encoded by 0 codecs"):
        chain.decode(EncodedParams(valid.layout, valid.body, ()))
    quantizer = CodecChain((int8(),))
    quantized: EncodedParams = quantizer.encode(Params.from_tensors({"w": torch.ones(4)}))
    with pytest.raises(WireError, match="received a scale that is not finite"):
        quantizer.decode(EncodedParams(quantized.layout, quantized.body, (torch.tensor([float("inf")]),)))


@with_every_chain
def test_a_codec_runs_on_the_device_of_its_input(name: str) -> None:
    chain, params = CodecChain(CHAINS[name]), make_params([(33, 16), (7,)], 1.0, 5)
    encoded, residuals = chain.encode_with_feedback(params, (), Seed(3))
    with fake_device() as to_device:
        params_on_device = Params(params.layout, to_device(params.flat.clone()))
        encoded_on_device, residuals_on_device = chain.encode_with_feedback(params_on_device, (), Seed(3))
        decoded = chain.decode(encoded_on_device)
        bound = chain.error_bound(params_on_device, Seed(3))
    assert serialize(encoded_on_device) == serialize(encoded)
    assert isinstance(decoded.flat, FakeDeviceTensor)
    assert torch.equal(decoded.flat.cpu(), chain.decode(encoded).flat)
    assert torch.equal(residuals_on_device[0].flat.cpu(), residuals[0].flat)
    assert bound == pytest.approx(chain.error_bound(params, Seed(3)))


def test_the_fake_device_rejects_cpu_tensors_and_generators() -> None:
    with fake_device() as to_device:
        with pytest.raises(RuntimeError, match="two devices"):
            to_device(torch.ones(3)).add_(torch.ones(3))
        with pytest.raises(RuntimeError, match="generator of another device"):
            torch.rand(3, generator=Seed(1).torch(), device=DEVICE)
        assert not isinstance(to_device(torch.ones(3)).to("cpu"), FakeDeviceTensor)
