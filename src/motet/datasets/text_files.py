"""Read text files line by line: compressed or not, with or without a byte-order mark, with stray invalid bytes."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from motet.core.errors import DataError
from motet.datasets.read_log import ReadLog

DECOMPRESSORS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BLOCK_SIZE = 1 << 20
BYTE_ORDER_MARK = "\ufeff"


class TextEncoding(NamedTuple):
    """An encoding, and how it was determined."""

    name: str
    reason: str


UTF8 = TextEncoding("utf-8", "the encoding of this format")


def _decode_as_latin1(error: UnicodeError) -> tuple[str, int]:
    """Decode an invalid byte as latin-1, by itself; the rest of the file keeps its encoding."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("motet-latin1-bytes", _decode_as_latin1)


class LenientDecoder:
    """Decodes text in an encoding. Invalid bytes are decoded as latin-1 and counted; a byte-order mark is removed."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.replaced_bytes = 0
        self.has_byte_order_mark = False

    def decode(self, block: bytes, is_start: bool) -> str:
        try:
            text = block.decode(self.encoding)
        except UnicodeDecodeError:
            valid = block.decode(self.encoding, errors="ignore").encode(self.encoding)
            self.replaced_bytes += len(block) - len(valid)
            text = block.decode(self.encoding, errors="motet-latin1-bytes")
        if is_start and text.startswith(BYTE_ORDER_MARK):
            self.has_byte_order_mark = True
            return text[1:]
        return text


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file and decompress it if needed."""
    try:
        with DECOMPRESSORS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path.name}: the file cannot be read ({reason}). Check {path}, and download it again if it is damaged."
        ) from None


def read_blocks(path: Path, log: ReadLog, encoding: TextEncoding = UTF8) -> Iterator[str]:
    """Yield the text of a file in blocks of whole lines."""
    decoder = LenientDecoder(encoding.name)
    is_start = True
    try:
        with open_binary(path) as file:
            for block in _whole_lines(file):
                yield decoder.decode(block, is_start)
                is_start = False
    finally:
        log.add_file(path, *encoding, decoder.replaced_bytes, decoder.has_byte_order_mark)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield blocks that end at a line feed; the last block may end without one."""
    pending: list[bytes] = []
    while block := file.read(BLOCK_SIZE):
        end = block.rfind(b"\n") + 1
        if end == 0:
            pending.append(block)
            continue
        yield b"".join([*pending, block[:end]])
        pending = [block[end:]]
    if any(pending):
        yield b"".join(pending)


def read_lines(path: Path, log: ReadLog, encoding: TextEncoding = UTF8) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines.

    Only a line feed ends a line: texts may contain other characters that `str.splitlines` treats as line ends.
    """
    number = 0
    for block in read_blocks(path, log, encoding):
        lines = block.split("\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            yield number, line.rstrip("\r")


def read_text(path: Path, log: ReadLog, encoding: TextEncoding = UTF8) -> str:
    """Read a whole file, with Unix line ends."""
    return "".join(read_blocks(path, log, encoding)).replace("\r\n", "\n").replace("\r", "\n")
