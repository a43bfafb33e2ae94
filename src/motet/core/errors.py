"""Errors a person can mend: each says what happened, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MotetError(Exception):
    """Anything that is reported as a sentence instead of a traceback."""


class ConfigError(MotetError):
    """A recipe, an option or an input that cannot work; found before anything trains."""


class DataError(ConfigError):
    """A corpus, a column or a row that does not fit the task."""


class PrivacyError(ConfigError):
    """A program wants to read more than its clients have agreed to reveal."""


class LayoutError(ConfigError):
    """Two sets of parameters do not fit each other, or a selection matches nothing."""


class WireError(MotetError):
    """Bytes that are not one of our messages."""


class RunError(MotetError):
    """A run that began and could not go on."""


def first_line(error: BaseException) -> str:
    """What an error of another package says, in short; its name, if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'mu'?"`, or nothing."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f" Did you mean '{names[near[0]]}'?" if near else ""
