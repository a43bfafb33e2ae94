"""Convert values to bytes and back.

A message is a version, a JSON header and raw tensors; nothing is ever unpickled.
"""

from motet.wire.format import (
    MessageSize,
    decode_header,
    deserialize,
    encode_header,
    iter_serialized,
    list_buffers,
    measure_payload,
    measure_size,
    serialize,
)

__all__ = [
    "MessageSize",
    "decode_header",
    "deserialize",
    "encode_header",
    "iter_serialized",
    "list_buffers",
    "measure_payload",
    "measure_size",
    "serialize",
]
