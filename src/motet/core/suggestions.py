"""Suggestions for misspelled words in errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_NAMES, SOME_NAMES = 10, 5  # more names are not read
FIELD_WORDS = {"dirichlet": "label", "non_iid": "label", "non-iid": "label", "iid": "uniform", "random": "uniform"}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'mu'?"`, or an empty string if no known word is close."""
    names = {name.lower(): name for name in known}
    if FIELD_WORDS.get(word.lower()) in names:
        return f" Did you mean '{names[FIELD_WORDS[word.lower()]]}'?"
    matches = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f" Did you mean '{names[matches[0]]}'?" if matches else ""


def name_choices(word: str, known: Iterable[str], *, verb: str = "there are", see: str = "", hint: str = "") -> str:
    """Return the end of an error about an unknown word: `"; there are mu, shared. Did you mean 'mu'?"`

    Of many names it shows the nearest ones. `see` is a command that shows all, `hint` a better suggestion.
    """
    names = list(dict.fromkeys(known))
    hint = hint or did_you_mean(word, names)
    if len(names) <= MAX_NAMES:
        return f"; {verb} {', '.join(names) or 'none'}.{hint}"
    if hint and see:
        return f".{hint} All {len(names)} names: {see}"
    nearest = difflib.get_close_matches(word, names, n=SOME_NAMES, cutoff=0.0)
    others = f"{len(names) - len(nearest)} others ({see})" if see else f"{len(names) - len(nearest)} others"
    return f"; {verb} {', '.join(nearest)} and {others}.{hint}"
