"""Recognize texts that a program wrote in its own form: with escape sequences, as a printed list, or badly decoded."""

from __future__ import annotations

import re

REPLACEMENT_CHARACTER = "\ufffd"  # what decoders write for invalid bytes
# UTF-8 that was decoded as Latin-1 or Windows-1252: "Ã©" for "é", "â€™" for an apostrophe, "Ð¼Ð¸" for Cyrillic letters.
# In other scripts than Latin, two letters must follow each other: "É»" may be a letter and a quotation mark.
_TAIL = "[\u0080-\u00bf" + bytes(range(0x80, 0xA0)).decode("cp1252", "ignore") + "]"
_MOJIBAKE = re.compile(
    f"[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00ef\u00bb\u00bf|(?:[\u00c4-\u00df]{_TAIL}){{2}}|(?:[\u00e0-\u00ef]{_TAIL}{{2}}){{2}}"
)
_ESCAPES = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|[a-zA-Z](?:acute|grave|uml|circ|tilde|cedil)|szlig|[mn]dash|[lr][sd]quo|hellip);"
    r"|&#(?:\d{2,5}|[xX][0-9a-fA-F]{2,5});|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|_x000[0-9A-F]_"
)
_ESCAPED_BREAK = re.compile(r"(?:\\r|\\n|[.,:;!?)])\\n|(?<=\w)\\n(?=[A-Z\s])")
_PRINTED = re.compile(r"""\s*(?:\[['"].*\]|\{'.*\}|\('.*\)|b'.*'|b".*")\s*""", re.DOTALL)


def has_mojibake(text: str) -> bool:
    """True if a text looks like UTF-8 that was decoded as Latin-1."""
    return not text.isascii() and _MOJIBAKE.search(text) is not None


def has_escapes(text: str) -> bool:
    """True for sequences such as &amp; and \\u00e9. A \\n counts only in a single line: in code, it is meant."""
    if "&" not in text and "\\" not in text and "_x" not in text:
        return False
    return bool(_ESCAPES.search(text) or ("\n" not in text and _ESCAPED_BREAK.search(text)))


def is_printed(text: str) -> bool:
    """True for lists, objects and bytes in the notation of Python, such as ['a', 'b'] and b'a'."""
    return text[:1] in "[{(b" and _PRINTED.fullmatch(text) is not None
