"""What programs write for a value that is missing."""

from __future__ import annotations

MAX_MISSING_LENGTH = 10  # characters, also of blanks around the value
MISSING_VALUES = (
    "", "nan", "nat", "null", "none", "n/a", "na", "<na>", "\\n", "?", "-", "#n/a", "#name?", "#value!", "#ref!", "#div/0!",
    "#null!", "#num!", "<noinput>",
)  # fmt: skip


def looks_missing(text: str) -> bool:
    return len(text) <= MAX_MISSING_LENGTH and text.strip().lower() in MISSING_VALUES
