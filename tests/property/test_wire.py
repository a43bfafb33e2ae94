"""Whatever is sent comes back as it was; whatever was not sent by us is refused, and nothing else happens."""

from __future__ import annotations

import math
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
from motet.wire.format import buffer_bytes

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


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, float):
        return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(values)
@settings(max_examples=200, deadline=None)
def test_a_value_survives_the_wire(value: Any) -> None:
    data = serialize(value)
    assert same(deserialize(data), value)
    assert measure_size(value).wire == len(data)


def test_neither_bytes_nor_tensors_are_copied_before_they_are_sent() -> None:
    box, numbers = bytes(range(256)), torch.arange(5)
    head, bulks = encode_header([box, numbers])
    assert bulks[0] is box
    assert bulks[1] is numbers
    assert b"".join([head, *map(buffer_bytes, bulks)]) == serialize([box, numbers])


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        deserialize(data)


MESSAGE = serialize(
    Request(1, "a", 2, "fedavg.train", Weighted(Params.from_tensors({"w": torch.ones(3), "b": torch.ones(2)}), 2.0))
)


@given(st.integers(0, len(MESSAGE) - 1), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_is_refused_or_still_a_message(place: int, change: int) -> None:
    damaged = bytearray(MESSAGE)
    damaged[place] ^= change
    try:
        value = deserialize(damaged)
    except WireError:
        return
    assert isinstance(value, Request | Reply) or value is not None


@given(st.integers(0, len(MESSAGE) - 1))
@settings(max_examples=100, deadline=None)
def test_a_message_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(WireError):
        deserialize(MESSAGE[:length])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(WireError, match="3 bytes stand after"):
        deserialize(MESSAGE + b"abc")


def test_another_version_is_refused_with_a_word() -> None:
    with pytest.raises(WireError, match="use the same Motet on both sides"):
        deserialize(MESSAGE[:4] + b"\x09\x00" + MESSAGE[6:])


def test_what_is_no_message_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="mark it with @message"):
        serialize({"f": test_bytes_after_the_end_are_refused})


def test_a_field_of_the_wrong_type_is_refused() -> None:
    head = serialize(Reply(1, "a"))
    wrong = serialize(Reply(1, "a").__class__("one", "a"))  # type: ignore[arg-type]
    assert deserialize(head).id == 1
    with pytest.raises(WireError, match=r"Reply.id came as str"):
        deserialize(wrong)


def test_a_vector_that_does_not_fit_its_layout_is_refused() -> None:
    good = Params.from_tensors({"w": torch.ones(3)})
    bad = object.__new__(Params)
    object.__setattr__(bad, "layout", good.layout)
    object.__setattr__(bad, "flat", torch.ones(5))
    with pytest.raises(WireError, match="cannot hold 3 numbers"):
        deserialize(serialize(bad))
