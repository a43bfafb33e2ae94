"""Makes text from the other side safe to print: a terminal would obey control characters in it."""

from __future__ import annotations

MAX_LENGTH = 2000


def clean_text(text: str) -> str:
    """Return the text without control characters, and at most `MAX_LENGTH` characters of it."""
    visible = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:MAX_LENGTH])
    return visible + ("…" if len(text) > MAX_LENGTH else "")
