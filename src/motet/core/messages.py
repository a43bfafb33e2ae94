"""Which values may cross a wire or lie in a checkpoint: dataclasses that say so, by name."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

C = TypeVar("C", bound=type)

MESSAGES: dict[str, type] = {}


def message(cls: C) -> C:
    """Let a dataclass be sent and stored under its own name. Values only: no code ever travels."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is no dataclass; put @message above @dataclass.")
    if MESSAGES.setdefault(cls.__name__, cls) is not cls:
        raise TypeError(
            f"two messages are called {cls.__name__}: {MESSAGES[cls.__name__].__module__}, {cls.__module__}."
        )
    return cls
