"""Suggestions for misspelled words in errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'mu'?"`, or an empty string if no known word is close."""
    names = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f" Did you mean '{names[matches[0]]}'?" if matches else ""
