"""Makes texts safe to print: a terminal would obey control characters in them."""

from __future__ import annotations

import re

MAX_LENGTH = 2000
# Control characters except tabs and line ends, half characters, and marks that reverse the direction of a line
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_NUMBER = re.compile(r"(?<![\w.@+])\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


def clean_text(text: str) -> str:
    """Return a text from a server or client without control characters, and at most `MAX_LENGTH` characters of it."""
    visible = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:MAX_LENGTH])
    return visible + ("…" if len(text) > MAX_LENGTH else "")


def hide_numbers(text: str) -> str:
    """Return a text with `…` for every number. Digits inside of words stay, such as those of float16."""
    return _NUMBER.sub("…", text)


def make_printable(text: str) -> str:
    """Return a text with `?` for every character that controls a terminal. Texts of all languages stay as they are."""
    return _UNPRINTABLE.sub("?", text)
