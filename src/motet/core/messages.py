"""The registry of values that may be sent over a network or stored in a checkpoint."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

C = TypeVar("C", bound=type)

MESSAGES: dict[str, type] = {}
SUBSTITUTES: dict[type, type] = {}  # a message -> the message in whose place it may be sent, e.g. encoded parameters


def message(cls: C) -> C:
    """Register a dataclass under its class name, so that it can be sent and stored. Only values travel, never code."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not a dataclass; put @message above @dataclass.")
    if MESSAGES.setdefault(cls.__name__, cls) is not cls:
        raise TypeError(
            f"two messages are named {cls.__name__} ({MESSAGES[cls.__name__].__module__} and {cls.__module__}); "
            "rename one of them."
        )
    return cls
