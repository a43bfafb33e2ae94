"""Permission to run Python code that a model brings along.

It is a setting of the process, not of a recipe: a recipe may come from a server or from another person, and only the
person at this machine can decide to run somebody's code on it (`--trust-remote-code`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ADVICE = (
    "The model brings Python code, and Motet does not run it. If you trust its author, add --trust-remote-code to the "
    "command on this machine."
)
_is_allowed = False


def is_remote_code_allowed() -> bool:
    return _is_allowed


@contextmanager
def allow_remote_code(allowed: bool = True) -> Iterator[None]:
    """Run the code of models that are loaded inside this block, in any thread."""
    global _is_allowed  # noqa: PLW0603
    before, _is_allowed = _is_allowed, allowed
    try:
        yield
    finally:
        _is_allowed = before
