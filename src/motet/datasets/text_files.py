"""Read text files line by line: compressed or not, with or without a byte-order mark, with stray invalid bytes."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from motet.core.errors import DataError
from motet.datasets.compression import is_compressed, open_binary
from motet.datasets.read_log import ReadLog
from motet.datasets.text_encoding import UTF8, TextEncoding

BLOCK_SIZE = 1 << 20
BYTE_ORDER_MARK = "\ufeff"
STATEFUL_ENCODINGS = ("utf-7", "hz", "iso2022")  # a line feed byte may be part of a character


def _decode_as_latin1(error: UnicodeError) -> tuple[str, int]:
    """Decode an invalid byte as latin-1, by itself; the rest of the file keeps its encoding."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("motet-latin1-bytes", _decode_as_latin1)


class BlockDecoder:
    """Decodes the blocks of a file. Invalid bytes are an error, or are decoded as latin-1 and counted."""

    def __init__(self, name: str, encoding: TextEncoding) -> None:
        self.name = name
        self.encoding = encoding
        self.replaced_bytes = 0
        self.has_byte_order_mark = False
        self._num_lines = 0
        self._is_start = True

    def decode(self, block: bytes) -> str:
        try:
            text = block.decode(self.encoding.name)
        except UnicodeDecodeError as error:
            text = self._decode_invalid(block, error)
        self._num_lines += text.count("\n")
        if self._is_start:
            self._is_start = False
            self.has_byte_order_mark = text.startswith(BYTE_ORDER_MARK)
            return text.removeprefix(BYTE_ORDER_MARK)
        return text

    def _decode_invalid(self, block: bytes, error: UnicodeDecodeError) -> str:
        codec = self.encoding.name
        if self.encoding.is_strict:
            line = self._num_lines + block[: error.start].decode(codec, "ignore").count("\n") + 1
            raise DataError(
                f"{self.name}, line {line}: byte 0x{block[error.start]:02x} is invalid in {codec} "
                f"({self.encoding.reason}). Fix the line, or set data.encoding, for example data.encoding=cp1252."
            ) from None
        self.replaced_bytes += len(block) - len(block.decode(codec, "ignore").encode(codec))
        return block.decode(codec, "motet-latin1-bytes")


def read_blocks(path: Path, log: ReadLog, encoding: TextEncoding = UTF8, may_cut_lines: bool = False) -> Iterator[str]:
    """Yield the text of a file in blocks of whole lines. If `may_cut_lines`, long lines of UTF-8 are cut."""
    decoder = BlockDecoder(log.relative_name(path), encoding)
    try:
        with open_binary(path) as file:
            log.add_file(path, encoding.name, encoding.reason, opened=None if is_compressed(path) else file)
            cuts = may_cut_lines and encoding.name == "utf-8"
            for block in _split_at_characters(file) if cuts else _split_at_lines(file, encoding.name):
                yield decoder.decode(block)
    finally:
        if decoder.replaced_bytes or decoder.has_byte_order_mark:
            log.add_file(path, encoding.name, encoding.reason, decoder.replaced_bytes, decoder.has_byte_order_mark)


def _split_at_lines(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield blocks that end with a line; the last block may end without a line feed."""
    if encoding.startswith(STATEFUL_ENCODINGS):
        yield file.read()
        return
    line_feed = "\n".encode(encoding)
    pending: list[bytes] = []
    while block := file.read(BLOCK_SIZE):
        if len(line_feed) > 1:  # UTF-16 or UTF-32: search in whole characters
            block = b"".join([*pending, block])
            pending = []
        end = _last_line_end(block, line_feed)
        if end == 0:
            pending.append(block)
            continue
        yield b"".join([*pending, block[:end]])
        pending = [block[end:]]
    if any(pending):
        yield b"".join(pending)


def _split_at_characters(file: BinaryIO) -> Iterator[bytes]:
    """Yield blocks of UTF-8 that end before the start of a character."""
    rest = b""
    while block := file.read(BLOCK_SIZE):
        data = rest + block
        end = next((len(data) - i for i in (1, 2, 3, 4) if i <= len(data) and data[-i] >= 0xC0), len(data))
        yield data[:end]
        rest = data[end:]
    if rest:
        yield rest


def _last_line_end(block: bytes, line_feed: bytes) -> int:
    """Return the position after the last line feed that starts at a whole character, or 0."""
    width = len(line_feed)
    position = block.rfind(line_feed)
    while position >= 0 and position % width:
        position = block.rfind(line_feed, 0, position + width - 1)
    return position + width if position >= 0 else 0


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
