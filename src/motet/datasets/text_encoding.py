"""Determine the encoding of a text file: as configured, from a byte-order mark, UTF-8 if valid, else a guess."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

from motet.core.errors import ConfigError, DataError
from motet.datasets.compression import open_binary
from motet.datasets.read_report import GUESSED

SAMPLE_SIZE = 1 << 16
BLOCK_SIZE = 1 << 20
MIN_LETTERS = 10  # distinct bytes above 127; text in another script has more, a line of dashes has fewer
BYTE_ORDER_MARKS = (  # UTF-32 first: its mark starts with the mark of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
BINARY_FILES = {
    b"\x1f\x8b": ".gz",
    b"BZh9": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip or .xlsx",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\x89HDF\r\n": ".h5",
    b"%PDF-": ".pdf, which Motet does not read",
}
CONTROL_BYTES = bytes(i for i in range(32) if i not in b"\t\n\v\f\r\x1c\x1d\x1e\x1f") + b"\x7f"
# Bytes within words. In Windows-1252, those of the first kind are mostly punctuation; in cp850 and Mac Roman, letters.
_UNUSUAL_LETTERS = re.compile(rb"(?<=[A-Za-z])[\x80-\x90\x98\x9a-\x9f](?=[A-Za-z])")
_USUAL_LETTERS = re.compile(rb"(?<=[A-Za-z])[\xc0-\xff](?=[A-Za-z])")
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")


class TextEncoding(NamedTuple):
    """An encoding, and how it was determined. If `is_strict`, an invalid byte is an error."""

    name: str
    reason: str
    is_strict: bool = False


UTF8 = TextEncoding("utf-8", "the encoding of this format")
VALID_UTF8 = TextEncoding("utf-8", "valid UTF-8", is_strict=True)


def find_codec(name: str) -> str:
    """Return Python's name of an encoding, or raise an error."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        codec = None
    if codec is None or not codec._is_text_encoding:
        raise ConfigError(f"data.encoding is '{name}'; expected an encoding such as utf-8, cp1252, latin-1 or utf-16.")
    return codec.name


def detect_encoding(path: Path, name: str, configured: str | None = None) -> TextEncoding:
    """Determine the encoding of a file. `name` is used in error messages."""
    with open_binary(path) as file:
        sample = file.read(SAMPLE_SIZE)
        encoding = _detect_from_start(sample, configured)
        if encoding is not None:
            return encoding
        _check_text(name, sample)
        num_valid, num_invalid, invalid_sample = _count_utf8(sample, file)
    if not num_invalid:
        return VALID_UTF8
    if num_valid >= 10 * num_invalid:
        return TextEncoding("utf-8", f"UTF-8 with {num_invalid:,} invalid bytes, which were read as latin-1")
    return TextEncoding(_guess_encoding(name, invalid_sample), GUESSED, is_strict=True)


def _check_text(name: str, sample: bytes) -> None:
    """Raise an error for binary files, which any encoding of single bytes would turn into nonsense."""
    for magic, suffix in BINARY_FILES.items():
        if sample.startswith(magic):
            raise DataError(f"{name}: the content is not text but {suffix}. Give the file this suffix.")
    num_control = len(sample) - len(sample.translate(None, CONTROL_BYTES))
    if num_control > len(sample) // 20:
        raise DataError(
            f"{name}: the file is not text: {num_control} of its first {len(sample)} bytes are control characters. Give "
            f"a binary file the suffix of its format."
        )


def read_first_lines(path: Path, count: int, configured: str | None = None) -> list[str]:
    """Return the first lines of a file that may be large, to recognize its format. Invalid bytes are replaced."""
    with open_binary(path) as file:
        sample = file.read(SAMPLE_SIZE)
        is_complete = not file.read(1)
    encoding = _detect_from_start(sample, configured) or UTF8
    text = sample.decode(encoding.name, "replace").removeprefix("\ufeff")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return (lines if is_complete and lines[-1] else lines[:-1])[:count]


def _detect_from_start(sample: bytes, configured: str | None) -> TextEncoding | None:
    """Return the encoding that is configured or that the first bytes show, or None."""
    marked = next((encoding for mark, encoding in BYTE_ORDER_MARKS if sample.startswith(mark)), None)
    if configured is not None:
        codec = find_codec(configured)
        if codec in ("utf-16", "utf-32"):  # the byte-order mark tells which
            codec = marked if marked and marked.startswith(codec) else f"{codec}-le"
        return TextEncoding(codec, "data.encoding", is_strict=True)
    if marked is not None:
        return TextEncoding(marked, "byte-order mark", is_strict=True)
    wide = _guess_wide_encoding(sample)
    return None if wide is None else TextEncoding(wide, "guessed from its zero bytes", is_strict=True)


def _guess_wide_encoding(sample: bytes) -> str | None:
    """Recognize UTF-16 without a byte-order mark: every other byte of Western text is 0."""
    half = len(sample) // 2
    zeros_first, zeros_second = sample[0::2].count(0), sample[1::2].count(0)
    if half and zeros_second > 0.4 * half and zeros_first < 0.05 * half:
        return "utf-16-le"
    if half and zeros_first > 0.4 * half and zeros_second < 0.05 * half:
        return "utf-16-be"
    return None


def _count_utf8(block: bytes, file: BinaryIO) -> tuple[int, int, bytes]:
    """Count the continuation bytes of valid UTF-8 and the invalid bytes; return the first block with invalid bytes."""
    num_valid = num_invalid = 0
    invalid_sample = rest = b""
    while block:
        data = rest + block
        try:
            text, consumed = codecs.utf_8_decode(data, "strict", False)
            num_bytes = consumed
        except UnicodeDecodeError:
            text, consumed = codecs.utf_8_decode(data, "ignore", False)
            num_bytes = len(text.encode())
            num_invalid += consumed - num_bytes
            invalid_sample = invalid_sample or data
        rest = data[consumed:]
        num_valid += num_bytes - len(text)
        block = file.read(BLOCK_SIZE)
    return num_valid, num_invalid + len(rest), invalid_sample or rest


def _guess_encoding(name: str, sample: bytes) -> str:
    """Guess a legacy encoding. Western text has single bytes above 127 between ASCII letters."""
    runs = _HIGH_BYTES.findall(sample)
    num_isolated = sum(len(run) for run in runs if len(run) <= 2)
    if num_isolated > 0.8 * sum(map(len, runs)) or len(set(b"".join(runs))) < MIN_LETTERS:
        if len(_UNUSUAL_LETTERS.findall(sample)) > len(_USUAL_LETTERS.findall(sample)):
            raise _not_utf8_error(name)
        try:
            sample.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1"
        return "cp1252"
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        match = None
    else:
        match = from_bytes(sample[:SAMPLE_SIZE]).best()
    if match is None:
        raise _not_utf8_error(name)
    return match.encoding


def _not_utf8_error(name: str) -> DataError:
    return DataError(
        f"{name}: the text is not UTF-8. Set data.encoding, for example data.encoding=cp1252 (Windows), cp850 (DOS) or "
        "mac-roman."
    )
