"""Compression of message headers. Most of a header is the layout, which is the same in all messages: it is compressed once.

A zlib stream consists of blocks. The blocks of a layout do not refer to earlier ones, so they are cached, and inserted
between the blocks of the parts that differ between messages. Any zlib can read the result.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

_START = b"\x78\x01"  # a zlib stream, compressed fast
_STORED_BLOCK = struct.Struct("<BHH")  # whether it is the last one, the length, and its complement
_MAX_STORED = 256  # bytes; compressing fewer of them saves little and takes longer
_MODULUS = 65521  # of Adler-32


class CompressedText(NamedTuple):
    """A text with blocks that can stand anywhere in a zlib stream, and its checksum."""

    text: str
    blocks: bytes
    checksum: int

    @staticmethod
    def of(text: str) -> CompressedText:
        data = text.encode()
        return CompressedText(text, _deflate(data, is_last=False), zlib.adler32(data))


def compress(between: Sequence[str], texts: Sequence[CompressedText]) -> bytes:
    """Compress between[0] + texts[0].text + between[1] + ... with one more text `between` than there are `texts`."""
    blocks, checksum = [_START], 1
    for i, part in enumerate(between):
        data = part.encode()
        checksum = zlib.adler32(data, checksum)
        blocks.append(_deflate(data, is_last=i == len(texts)))
        if i < len(texts):
            blocks.append(texts[i].blocks)
            checksum = _join_checksums(checksum, texts[i].checksum, len(texts[i].text))
    return b"".join([*blocks, checksum.to_bytes(4, "big")])


def _deflate(data: bytes, is_last: bool) -> bytes:
    """Return blocks that end at a byte."""
    if len(data) <= _MAX_STORED:
        return _STORED_BLOCK.pack(is_last, len(data), len(data) ^ 0xFFFF) + data
    compressor = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(zlib.Z_FINISH if is_last else zlib.Z_FULL_FLUSH)


def _join_checksums(first: int, second: int, length: int) -> int:
    """Return the checksum of two texts after each other; the second one has this length."""
    low = (first & 0xFFFF) + (second & 0xFFFF) - 1
    high = (first >> 16) + (second >> 16) + length * ((first & 0xFFFF) - 1)
    return (high % _MODULUS) << 16 | low % _MODULUS
