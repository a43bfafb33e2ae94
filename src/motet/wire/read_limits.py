"""Limits on what a received message may contain. They are checked before anything is decompressed or allocated."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from motet.core.errors import WireError
from motet.core.params import Layout

MAX_DIMS, MAX_NUMBERS = 64, 2**48  # of one tensor
MAX_INTEGER_KEY = 2**63
UNLIMITED = 2**62
# A string without an end matches too: a search would begin again at each of its escaped quotes, and take quadratic time.
_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


@dataclass(frozen=True)
class ReadLimits:
    """What a message may contain, depending on its sender and kind.

    A few kilobytes of compressed JSON can hold millions of empty lists, and a few indices can stand for a vector of any
    length. So the size of a message says nothing about the memory that its value needs.
    """

    header_bytes: int = 64 * 2**20  # of the header, after decompression
    nodes: int = UNLIMITED  # items of all lists and maps in the header
    numbers: int = UNLIMITED  # numbers of parameters that are sent in fewer bytes, such as top_k
    copies: int = UNLIMITED  # how often a message may have that many numbers
    messages: frozenset[str] | None = None  # message classes that may occur; None: all

    def check_nodes(self, header: bytes) -> None:
        """Raise an error if the JSON text has too many nodes, without parsing it."""
        if _count_nodes(header) <= self.nodes:
            return
        nodes = _count_nodes(_JSON_STRING.sub(b'""', header))  # brackets inside strings do not count
        if nodes > self.nodes:
            raise WireError(
                f"the header has {nodes} items; at most {self.nodes} are accepted. The message is rejected."
            )

    def check_message(self, name: str) -> None:
        if self.messages is not None and name not in self.messages:
            raise WireError(f"a {name} is not expected here.")

    def check_layout(self, layout: Layout, message_bytes: int) -> None:
        """Raise an error if a layout is inconsistent, or larger than the run's models and the message itself."""
        if not len(layout.names) == len(layout.shapes) == len(layout.roles) == len(set(layout.names)):
            raise WireError(
                f"a layout has {len(set(layout.names))} different names, {len(layout.shapes)} shapes and "
                f"{len(layout.roles)} roles; expected as many of each."
            )
        count = sum(count_numbers(shape) for shape in layout.shapes)
        limit = max(self.numbers, message_bytes)  # uncompressed numbers take at least one byte each
        if count > limit:
            raise WireError(
                f"parameters with {count} numbers were announced; at most {limit} are expected in this run."
            )

    def check_total(self, count: int, message_bytes: int) -> None:
        """Raise an error if all parameters of a message together have too many numbers."""
        limit = self.numbers * self.copies + message_bytes
        if count > limit:
            raise WireError(
                f"parameters with {count} numbers in all were announced; at most {limit} are expected in one message."
            )


TRUSTED_LIMITS = ReadLimits()  # for messages of the same process or owner, and for its files


def count_numbers(shape: Sequence[Any]) -> int:
    """Return how many numbers a tensor of this shape holds. Raise an error if the shape is impossible.

    A dimension of 0 makes a tensor empty, but the other dimensions must be possible too: their product is a stride.
    """
    is_valid = len(shape) <= MAX_DIMS and all(type(n) is int and 0 <= n <= MAX_NUMBERS for n in shape)
    if is_valid and math.prod(n or 1 for n in shape) <= MAX_NUMBERS:
        return math.prod(shape)
    start = ", ".join(str(n)[:20] for n in shape[:4])
    raise WireError(
        f"a tensor of shape [{start}{', …' if len(shape) > 4 else ''}] was announced; expected at most {MAX_DIMS} whole "
        f"numbers with a product of at most {MAX_NUMBERS}."
    )


def check_key(key: Any) -> Any:
    """Return the key of a map if nobody can construct many such keys with the same hash; else raise an error.

    The hash of a string is different in every process. The hashes of large integers, floats and tuples of numbers are
    known, and thousands of keys with the same hash take minutes to read.
    """
    if isinstance(key, str | bytes | None):
        return key
    if isinstance(key, int) and abs(key) < MAX_INTEGER_KEY:
        return key
    if isinstance(key, tuple) and all(isinstance(part, str) for part in key):
        return key
    raise WireError(f"a map has the key {str(key)[:40]!r}; expected a string, a 64-bit integer or a tuple of strings.")


def _count_nodes(header: bytes) -> int:
    return 1 + header.count(b",") + header.count(b"[") + header.count(b"{")
