"""Names of labels or clients that are probably one, written in several ways."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

YES_OR_NO = (("true", "false"), ("yes", "no"), ("1", "0"), ("t", "f"), ("y", "n"))


def find_similar(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the names that differ only in case, spaces or characters that look alike."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(_simplify(name), []).append(name)
    return {name: counts[name] for group in groups.values() if len(group) > 1 for name in group}


def find_mixed_booleans(counts: Mapping[str, int]) -> dict[str, int]:
    """Return all names if they say yes or no in several ways, such as True, 1 and no."""
    words = {name.casefold() for name in counts}
    used = [pair for pair in YES_OR_NO if words.intersection(pair)]
    return dict(counts) if len(used) > 1 and words.issubset(word for pair in used for word in pair) else {}


def _simplify(name: str) -> str:
    """Return a name without case, spaces, invisible characters and leading zeros, and with one kind of hyphen."""
    characters = unicodedata.normalize("NFKC", name.casefold())
    kinds = ((character, unicodedata.category(character)) for character in characters)
    text = "".join("-" if kind == "Pd" else character for character, kind in kinds if kind != "Cf")
    return re.sub(r"^0+(?=\d)", "", " ".join(text.split()))
