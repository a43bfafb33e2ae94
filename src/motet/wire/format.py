"""The wire format of messages and stored files: a prefix (magic, version, flags, header length), a JSON header, raw tensors.

The header mirrors the value. JSON objects with a "!" key stand for what JSON lacks: tensors and bytes (their data
follows the header, in order), tuples, maps, floats that are not finite, and messages by class name (`core.messages`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import MotetError, WireError
from motet.core.messages import MESSAGES
from motet.core.params import Layout
from motet.wire.known_messages import find_message
from motet.wire.read_limits import TRUSTED_LIMITS, ReadLimits, check_key, count_numbers
from motet.wire.type_check import field_types, matches_type

MAGIC, WIRE_VERSION = b"MTET", 2  # increase the version when the format or the name of a message changes
FLAG_COMPRESSED = 1
_PREFIX = struct.Struct("<4sHHI")
_COMPRESS_ABOVE = 256  # bytes of the header
_MAX_DEPTH = 32
_SCALARS = (str, int, float, type(None))
_to_json = json.JSONEncoder(allow_nan=False).encode
# Most values; `_to_json` and pattern matching take several times as long.
_JSON_TEXTS: dict[type, Callable[[Any], str]] = {
    str: json.encoder.encode_basestring_ascii,
    int: repr,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip

Buffer = Tensor | bytes  # data that follows the header; it is sent without a copy
FindKey = Callable[[object], str | None]
TensorReader = Callable[[torch.dtype, tuple[int, ...], int], Tensor]  # (dtype, shape, bytes) -> the next tensor


class MessageSize(NamedTuple):
    """Bytes of the tensors, and of the whole message."""

    payload: int
    wire: int


# ---- Serialize
# --------------------------------------------------------------------------------------------------------


def serialize(value: object) -> bytes:
    return b"".join(iter_serialized(value))


def iter_serialized(value: object) -> Iterator[bytes | memoryview]:
    """Yield the message in pieces, so that a large message is never in memory twice."""
    header, buffers = encode_header(value)
    yield header
    yield from map(buffer_bytes, buffers)


def measure_size(value: object) -> MessageSize:
    """Return the size of a message without creating it."""
    header, buffers = encode_header(value)
    payload = sum(map(_buffer_size, buffers))
    return MessageSize(payload, payload + len(header))


def measure_payload(value: object) -> int:
    """Return the bytes of the tensors in a value."""
    return sum(map(_buffer_size, list_buffers(value)))


def list_buffers(value: object) -> list[Buffer]:
    """Return the tensors and bytes in a value, at any depth."""
    return encode_parts(value)[1]


def _buffer_size(buffer: Buffer) -> int:
    return len(buffer) if isinstance(buffer, bytes) else buffer.numel() * buffer.element_size()


def encode_header(value: object, find_key: FindKey = lambda _: None) -> tuple[bytes, list[Buffer]]:
    """Return the prefix and header as bytes, and the buffers that follow them.

    `find_key` may return a key for an object that the receiver already has; then only the key is sent.
    """
    text, buffers = encode_parts(value, find_key)
    header, flags = text.encode(), 0
    if len(header) > _COMPRESS_ABOVE:
        header, flags = zlib.compress(header, 1), FLAG_COMPRESSED
    return _PREFIX.pack(MAGIC, WIRE_VERSION, flags, len(header)) + header, buffers


def encode_parts(value: object, find_key: FindKey = lambda _: None) -> tuple[str, list[Buffer]]:
    """Return the JSON text of a value, and the tensors and bytes that it refers to."""
    out = _Encoding([], find_key)
    return _encode(value, out), out.buffers


class _Encoding(NamedTuple):
    """The buffers that the text of a value refers to, and the function that finds the key of a known value."""

    buffers: list[Buffer]
    find_key: FindKey


def buffer_bytes(buffer: Buffer) -> memoryview:
    if isinstance(buffer, bytes):
        return memoryview(buffer)
    flat = buffer.detach().contiguous().reshape(-1).cpu()
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def _encode(value: Any, out: _Encoding) -> str:
    """Return the JSON text of a value, and append what it refers to."""
    if type(value) in _JSON_TEXTS:
        return _JSON_TEXTS[type(value)](value)
    match value:
        case None | bool() | str() | int():
            return _to_json(value)
        case float():
            return _to_json(float(value)) if math.isfinite(value) else f'{{"!":"float","is":"{float(value)!r}"}}'
        case Tensor() | np.ndarray() | bytes():
            return _encode_buffer(value, out.buffers)
        case list():
            return _encode_list(value, out)
        case tuple():
            return f'{{"!":"tuple","items":{_encode_list(value, out)}}}'
        case dict():
            pairs = (_encode_list(pair, out) for pair in value.items())
            return f'{{"!":"map","items":[{",".join(pairs)}]}}'
    if (key := out.find_key(value)) is not None:
        return f'{{"!":"known","key":{_to_json(key)}}}'
    if not isinstance(value, Layout):
        return _encode_message(value, out)
    if "_wire_text" not in vars(value):  # hundreds of names, the same in every message of a run
        vars(value)["_wire_text"] = _encode_message(value, out)
    text: str = vars(value)["_wire_text"]
    return text


def _encode_message(value: Any, out: _Encoding) -> str:
    name = type(value).__name__
    if MESSAGES.get(name) is not type(value):
        raise WireError(f"{name} may not be sent or stored; make it a dataclass and mark it with @message.")
    fields = [getattr(value, field) for field in _field_names(MESSAGES[name])]
    return f'{{"!":"{name}","fields":{_encode_list(fields, out)}}}'


@cache
def _field_names(message_class: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(message_class))


@cache
def _count_required(message_class: type) -> int:
    """Return the number of fields without a default."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(message_class)
    return sum(field.default is missing and field.default_factory is missing for field in fields)


def _encode_list(values: Iterable[Any], out: _Encoding) -> str:
    return f"[{','.join(_encode(value, out) for value in values)}]"


def _encode_buffer(value: Tensor | np.ndarray | bytes, buffers: list[Buffer]) -> str:
    if isinstance(value, bytes):
        buffers.append(value)
        return f'{{"!":"bytes","dtype":"uint8","shape":[{len(value)}]}}'
    if isinstance(value, np.ndarray):
        kind, tensor = "array", torch.from_numpy(np.ascontiguousarray(value))
    else:
        kind, tensor = "tensor", value
    buffers.append(tensor)
    dtype, shape = str(tensor.dtype).removeprefix("torch."), ",".join(map(str, tensor.shape))
    return f'{{"!":"{kind}","dtype":"{dtype}","shape":[{shape}]}}'


# ---- Deserialize
# ------------------------------------------------------------------------------------------------------


def deserialize(data: bytes | bytearray | memoryview, limits: ReadLimits = TRUSTED_LIMITS) -> Any:
    """Return the value of a message. Any malformed input raises WireError, and so does one beyond the limits."""
    view = memoryview(data)
    header, end = read_header(view, limits)

    def read_tensor(dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
        nonlocal end
        if size > len(view) - end:
            raise WireError(
                f"a tensor of {size} bytes was announced, but only {len(view) - end} bytes are left; the message is cut off."
            )
        piece, end = view[end : end + size], end + size
        return tensor_from_bytes(piece, dtype, shape)

    value = decode_header(header, read_tensor, limits=limits, message_bytes=len(view))
    if end != len(view):
        raise WireError(f"{len(view) - end} bytes follow the end of the message; expected none.")
    return value


def read_header(view: memoryview, limits: ReadLimits = TRUSTED_LIMITS) -> tuple[bytes, int]:
    """Return the decompressed header, and the position where it ends in the message."""
    if len(view) < _PREFIX.size:
        raise WireError(f"{len(view)} bytes are not a message; expected at least {_PREFIX.size}.")
    magic, version, flags, length = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise WireError(f"the message starts with {bytes(magic)!r}; expected {MAGIC!r}. The sender is not Motet.")
    if version != WIRE_VERSION:
        raise WireError(
            f"the message has version {version}, this is version {WIRE_VERSION}; use the same Motet on both sides."
        )
    end = _PREFIX.size + length
    if length > limits.header_bytes or end > len(view):
        raise WireError(
            f"a header of {length} bytes was announced in a message of {len(view)}; it is cut off, damaged or too large."
        )
    header = bytes(view[_PREFIX.size : end])
    return (_decompress(header, limits.header_bytes) if flags & FLAG_COMPRESSED else header), end


def _decompress(header: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        decompressed = decompressor.decompress(header, limit)
    except zlib.error as error:
        raise WireError(f"the header of the message cannot be decompressed ({error}); it is damaged.") from None
    if decompressor.unconsumed_tail:
        raise WireError(f"the decompressed header is larger than {limit} bytes; the message is rejected.")
    return decompressed


def decode_header(
    header: bytes,
    read_tensor: TensorReader,
    resolve: Callable[[str], Any] | None = None,
    limits: ReadLimits = TRUSTED_LIMITS,
    message_bytes: int = 0,
) -> Any:
    """Return the value that a header describes. `resolve` returns objects that the sender replaced by a key."""
    limits.check_nodes(header)
    try:
        return _Decoder(read_tensor, resolve, limits, message_bytes).decode(json.loads(header.decode()), 0)
    except WireError:
        raise
    except MotetError as error:
        raise WireError(f"the message is inconsistent: {error}") from None
    except Exception as error:  # whatever Python, NumPy or PyTorch raise, the sender is at fault
        raise WireError(
            f"the header of the message is invalid ({type(error).__name__}: {str(error)[:120]}); it is damaged."
        ) from None


def tensor_from_bytes(data: memoryview | bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor on these bytes. They are copied only if they are read-only."""
    if not len(data):
        return torch.zeros(shape, dtype=dtype)
    writable = data if not memoryview(data).readonly else bytearray(data)
    return torch.frombuffer(writable, dtype=torch.uint8).view(dtype).view(shape)


class _Decoder:
    """Builds a value from the nodes of a header, and its tensors from the bytes that follow the header."""

    def __init__(
        self,
        read_tensor: TensorReader,
        resolve: Callable[[str], Any] | None,
        limits: ReadLimits,
        message_bytes: int,
    ) -> None:
        self.read_tensor, self.resolve, self.limits, self.message_bytes = read_tensor, resolve, limits, message_bytes
        self.announced_numbers = 0

    def decode(self, node: Any, depth: int) -> Any:
        if isinstance(node, _SCALARS):
            return node
        if depth > _MAX_DEPTH:
            raise WireError(f"the message is nested deeper than {_MAX_DEPTH}; it is rejected.")
        if isinstance(node, list):
            return [self.decode(child, depth + 1) for child in node]
        match kind := node["!"]:
            case "tensor" | "array" | "bytes":
                return self._decode_buffer(kind, DTYPES[node["dtype"]], tuple(node["shape"]))
            case "float":
                return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[node["is"]]
            case "tuple":
                return tuple(self.decode(child, depth + 1) for child in node["items"])
            case "map":
                pairs = ((self.decode(key, depth + 1), self.decode(item, depth + 1)) for key, item in node["items"])
                return {check_key(key): item for key, item in pairs}
            case "known":
                if self.resolve is None:
                    raise WireError("the message refers to an object by key; that is allowed only within one machine.")
                return self.resolve(node["key"])
        return self._decode_message(kind, [self.decode(child, depth + 1) for child in node["fields"]])

    def _decode_buffer(self, kind: str, dtype: torch.dtype, shape: tuple[Any, ...]) -> Any:
        tensor = self.read_tensor(dtype, shape, count_numbers(shape) * dtype.itemsize)
        if dtype == torch.bool and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
            raise WireError("a tensor of booleans has bytes other than 0 and 1; the message is damaged.")
        return tensor if kind == "tensor" else tensor.numpy() if kind == "array" else tensor.numpy().tobytes()

    def _decode_message(self, name: Any, values: Sequence[Any]) -> Any:
        message_class = find_message(name) if isinstance(name, str) else None
        if message_class is None:
            raise WireError(f"there is no message '{str(name)[:40]}'; use the same Motet on both sides.")
        self.limits.check_message(name)
        fields = _field_names(message_class)
        # A file of an older version has no field that was added since. Such fields come last and have defaults.
        if not _count_required(message_class) <= len(values) <= len(fields):
            raise WireError(f"{name} has {len(values)} fields; expected {len(fields)}: {', '.join(fields)}.")
        types = field_types(message_class)
        for field, value in zip(fields, values, strict=False):
            if not matches_type(value, types[field]):
                raise WireError(f"{name}.{field} is a {type(value).__name__}; expected {types[field]}.")
        message = message_class(*values)
        if isinstance(message, Layout):
            self.limits.check_layout(message, self.message_bytes)
            self.announced_numbers += message.size
            self.limits.check_total(self.announced_numbers, self.message_bytes)
        return message
