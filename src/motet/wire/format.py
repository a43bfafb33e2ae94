"""The format: magic, version, flags, length of the head; the head as JSON; then the tensors' bytes in order.

The head mirrors the value. What JSON has no word for is an object with a "!": tensors (whose bytes follow), tuples, maps,
bytes, floats that are not finite, and messages by their name (`core.messages`). Messages and stored files share this format.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import MotetError, WireError
from motet.core.messages import MESSAGES
from motet.core.params import Layout
from motet.wire.type_check import field_types, matches_type

MAGIC, WIRE_VERSION, COMPRESSED = b"MTET", 2, 1
_ENCODE = json.JSONEncoder(allow_nan=False).encode
_LEAD = struct.Struct("<4sHHI")
HEADER_LIMIT, _DEPTH_LIMIT, _DIMS, _LONGEST = 64 * 2**20, 32, 64, 2**48
DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


Buffer = Tensor | bytes  # what stands after the head as it is: no copy is made of it before it is sent


class MessageSize(NamedTuple):
    """Bytes of tensors alone, and of the whole message."""

    payload: int
    wire: int


def encode_header(value: object, refer: Callable[[object], str | None] = lambda _: None) -> tuple[bytes, list[Buffer]]:
    """The lead and head as bytes, and what follows as it is. `refer` may name things the reader already has."""
    bulk: list[Buffer] = []
    head = _text(value, bulk, refer).encode()
    flags = 0
    if len(head) > 256:
        head, flags = zlib.compress(head, 1), COMPRESSED
    return _LEAD.pack(MAGIC, WIRE_VERSION, flags, len(head)) + head, bulk


def iter_serialized(value: object) -> Iterator[bytes | memoryview]:
    """The message in pieces, none of which is made before it is asked for: a large one is never held twice."""
    head, bulk = encode_header(value)
    yield head
    yield from (buffer_bytes(t) for t in bulk)


def serialize(value: object) -> bytes:
    return b"".join(iter_serialized(value))


def measure_size(value: object) -> MessageSize:
    """How large the message would be, without making it."""
    head, bulk = encode_header(value)
    payload = sum(len(t) if isinstance(t, bytes) else t.numel() * t.element_size() for t in bulk)
    return MessageSize(payload, payload + len(head))


def buffer_bytes(tensor: Buffer) -> memoryview:
    if isinstance(tensor, bytes):
        return memoryview(tensor)
    flat = tensor.detach().contiguous().reshape(-1).cpu()
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def deserialize(data: bytes | bytearray | memoryview, head_limit: int = HEADER_LIMIT) -> Any:
    """A value from bytes; anything malformed is a WireError, whatever it is. `head_limit` is of the head when it is opened:
    a little of what is compressed can be a lot to read."""
    view = memoryview(data)
    head, end = read_header(view, head_limit)

    def tensor(dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
        nonlocal end
        if size > len(view) - end:
            raise WireError(
                f"a tensor of {size} bytes was announced and {len(view) - end} are left; the message is cut off."
            )
        piece, end = view[end : end + size], end + size
        return tensor_from_bytes(piece, dtype, shape)

    value = decode_header(head, tensor)
    if end != len(view):
        raise WireError(f"{len(view) - end} bytes stand after the message's end; expected none.")
    return value


def tensor_from_bytes(piece: memoryview | bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(piece):
        return torch.zeros(shape, dtype=dtype)
    writable = piece if not memoryview(piece).readonly else bytearray(piece)
    return torch.frombuffer(writable, dtype=torch.uint8).view(dtype).view(shape)


def read_header(view: memoryview, limit: int = HEADER_LIMIT) -> tuple[bytes, int]:
    """The head, decompressed, and where it ends."""
    if len(view) < _LEAD.size:
        raise WireError(f"{len(view)} bytes are no message; expected at least {_LEAD.size}.")
    magic, version, flags, length = _LEAD.unpack_from(view)
    if magic != MAGIC:
        raise WireError(
            f"the message begins with {bytes(magic)!r}, not with {MAGIC!r}; the sender does not speak Motet."
        )
    if version != WIRE_VERSION:
        raise WireError(
            f"the message has version {version}, this is version {WIRE_VERSION}; use the same Motet on both sides."
        )
    end = _LEAD.size + length
    if length > limit or end > len(view):
        raise WireError(
            f"a head of {length} bytes was announced in a message of {len(view)}; it is cut off or damaged."
        )
    head = bytes(view[_LEAD.size : end])
    if flags & COMPRESSED:
        opener = zlib.decompressobj()
        try:
            head = opener.decompress(head, limit)
        except zlib.error as error:
            raise WireError(f"the message's head cannot be read ({error}); it is damaged.") from None
        if opener.unconsumed_tail:
            raise WireError(f"the message's head is larger than {limit} bytes when opened; it is refused.")
    return head, end


TensorReader = Callable[[torch.dtype, tuple[int, ...], int], Tensor]


def decode_header(head: bytes, tensor: TensorReader, resolve: Callable[[str], Any] | None = None) -> Any:
    try:
        return _build(json.loads(head), tensor, resolve, 0)
    except MotetError as error:
        raise (
            error if isinstance(error, WireError) else WireError(f"the message does not hold together: {error}")
        ) from None
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError, AttributeError) as error:
        raise WireError(f"the message's head makes no sense ({type(error).__name__}: {str(error)[:120]}).") from None


def _text(value: Any, bulk: list[Buffer], refer: Callable[[object], str | None]) -> str:
    """The value's head as JSON; what is bulky is put aside."""
    match value:
        case None | bool() | str() | int():
            return _ENCODE(value)
        case float():
            return _ENCODE(float(value)) if math.isfinite(value) else f'{{"!":"float","is":"{float(value)!r}"}}'
        case Tensor() | np.ndarray() | bytes():
            return _bulk(value, bulk)
        case list():
            return _many(value, bulk, refer)
        case tuple():
            return f'{{"!":"tuple","items":{_many(value, bulk, refer)}}}'
        case dict():
            pairs = (_many(pair, bulk, refer) for pair in value.items())
            return f'{{"!":"map","items":[{",".join(pairs)}]}}'
    if (known := refer(value)) is not None:
        return f'{{"!":"known","key":{_ENCODE(known)}}}'
    if isinstance(value, Layout) and "_text" in vars(value):
        return str(vars(value)["_text"])
    kind = type(value).__name__
    if MESSAGES.get(kind) is not type(value):
        raise WireError(f"{kind} may not be sent or stored; make it a dataclass and mark it with @message.")
    fields = _many([getattr(value, f.name) for f in dataclasses.fields(MESSAGES[kind])], bulk, refer)
    text = f'{{"!":"{kind}","fields":{fields}}}'
    if isinstance(value, Layout):  # hundreds of names that never change, in every message of a run
        vars(value)["_text"] = text
    return text


def _many(values: Iterable[Any], bulk: list[Buffer], refer: Callable[[object], str | None]) -> str:
    return f"[{','.join(_text(v, bulk, refer) for v in values)}]"


def _bulk(value: Tensor | np.ndarray | bytes, bulk: list[Buffer]) -> str:
    if isinstance(value, bytes):
        bulk.append(value)
        return f'{{"!":"bytes","dtype":"uint8","shape":[{len(value)}]}}'
    if isinstance(value, np.ndarray):
        kind, tensor = "array", torch.from_numpy(np.ascontiguousarray(value))
    else:
        kind, tensor = "tensor", value
    bulk.append(tensor)
    dtype, shape = str(tensor.dtype).removeprefix("torch."), ",".join(map(str, tensor.shape))
    return f'{{"!":"{kind}","dtype":"{dtype}","shape":[{shape}]}}'


def _build(node: Any, tensor: TensorReader, resolve: Callable[[str], Any] | None, depth: int) -> Any:
    if depth > _DEPTH_LIMIT:
        raise WireError(f"the message is nested deeper than {_DEPTH_LIMIT}; it is refused.")

    def inside(part: Any) -> Any:
        return _build(part, tensor, resolve, depth + 1)

    if isinstance(node, list):
        return [inside(v) for v in node]
    if not isinstance(node, dict):
        return node
    kind = node["!"]
    match kind:
        case "tensor" | "array" | "bytes":
            dtype, shape = DTYPES[node["dtype"]], tuple(node["shape"])
            if len(shape) > _DIMS or any(type(n) is not int or not 0 <= n < _LONGEST for n in shape):
                said = ", ".join(str(n)[:20] for n in shape[:4])
                raise WireError(f"a tensor of shape [{said}…] was announced; expected at most {_DIMS} whole numbers.")
            found = tensor(dtype, shape, math.prod(shape) * dtype.itemsize)
            return found if kind == "tensor" else found.numpy() if kind == "array" else found.numpy().tobytes()
        case "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[node["is"]]
        case "tuple":
            return tuple(inside(v) for v in node["items"])
        case "map":
            return {inside(k): inside(v) for k, v in node["items"]}
        case "known":
            if resolve is None:
                raise WireError(
                    "the message names something that is not in it; that is allowed only within one machine."
                )
            return resolve(node["key"])
    return _message(kind, [inside(v) for v in node["fields"]])


def _message(kind: Any, values: Sequence[Any]) -> Any:
    cls = MESSAGES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise WireError(f"there is no message called {str(kind)[:40]!r}; sender and reader use different versions.")
    names = [f.name for f in dataclasses.fields(cls)]
    if len(names) != len(values):
        raise WireError(f"{kind} came with {len(values)} fields; expected {len(names)}: {', '.join(names)}.")
    for name, value in zip(names, values, strict=True):
        if not matches_type(value, field_types(cls)[name]):
            raise WireError(f"{kind}.{name} came as {type(value).__name__}; expected {field_types(cls)[name]}.")
    return cls(*values)
