"""A value survives serialization, and any other bytes raise a WireError and nothing else."""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core.errors import WireError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, encode_header, measure_size, serialize
from motet.wire.format import buffer_bytes, encode_parts

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.binary(max_size=12)
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    return (torch.arange(math.prod(shape)).reshape(shape) * 1.5).to(dtype)


values = st.recursive(
    scalars | tensors(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, float):
        return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(values)
@settings(max_examples=200, deadline=None)
def test_a_value_survives_serialization(value: Any) -> None:
    data = serialize(value)
    assert is_same(deserialize(data), value)
    assert measure_size(value).wire == len(data)


def test_bytes_and_tensors_are_not_copied_before_they_are_sent() -> None:
    data, numbers = bytes(range(256)), torch.arange(5)
    header, buffers = encode_header([data, numbers])
    assert buffers[0] is data
    assert buffers[1] is numbers
    assert b"".join([header, *map(buffer_bytes, buffers)]) == serialize([data, numbers])


@given(st.lists(st.one_of(st.sampled_from([1, 40]), st.text(max_size=600)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_header_whose_layouts_were_compressed_before_is_one_zlib_stream(parts: list[int | str]) -> None:
    """Layouts of 1 and 40 tensors, between texts of any length."""
    layouts = {n: Params.from_tensors({f"tensor {i}": torch.ones(2) for i in range(n)}) for n in (1, 40)}
    value = ["x" * 300, *(layouts[part] if isinstance(part, int) else part for part in parts)]
    header, buffers = encode_header(value)
    text, same_buffers = encode_parts(value)
    assert zlib.decompress(header[12:]).decode() == text
    assert [id(buffer) for buffer in buffers] == [id(buffer) for buffer in same_buffers]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(WireError):
        deserialize(data)


PARAMS = Params.from_tensors({"w": torch.ones(3), "b": torch.ones(2)})
MESSAGE = serialize(Request(1, "a", 2, "fedavg.train", Weighted(PARAMS, 2.0)))


@given(st.integers(0, len(MESSAGE) - 1), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_raises_no_other_error(position: int, change: int) -> None:
    damaged = bytearray(MESSAGE)
    damaged[position] ^= change
    with suppress(WireError):  # a changed number may still be a message
        deserialize(damaged)


@given(st.integers(0, len(MESSAGE) - 1))
@settings(max_examples=100, deadline=None)
def test_a_truncated_message_is_rejected(length: int) -> None:
    with pytest.raises(WireError):
        deserialize(MESSAGE[:length])


def test_extra_bytes_are_rejected() -> None:
    with pytest.raises(WireError, match="3 bytes follow the end"):
        deserialize(MESSAGE + b"abc")


def test_another_version_is_rejected_with_advice() -> None:
    with pytest.raises(WireError, match="use the same Motet on both sides"):
        deserialize(MESSAGE[:4] + b"\x09\x00" + MESSAGE[6:])


def test_an_object_that_is_not_a_message_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="mark it with @message"):
        serialize({"f": test_extra_bytes_are_rejected})


def test_a_field_of_the_wrong_type_is_rejected() -> None:
    assert deserialize(serialize(Reply(1, "a"))).id == 1
    wrong = serialize(Reply("one", "a"))  # type: ignore[arg-type]
    with pytest.raises(WireError, match=r"Reply.id is a str; expected .*int"):
        deserialize(wrong)


def test_a_vector_that_does_not_fit_its_layout_is_rejected() -> None:
    valid = Params.from_tensors({"w": torch.ones(3)})
    invalid = object.__new__(Params)
    object.__setattr__(invalid, "layout", valid.layout)
    object.__setattr__(invalid, "flat", torch.ones(5))
    with pytest.raises(WireError, match="3 numbers"):
        deserialize(serialize(invalid))
