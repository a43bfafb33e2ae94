"""Say which part of a suite an error is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from motet.core.errors import ConfigError


@contextmanager
def label_config_errors(label: str) -> Iterator[None]:
    """Put a label before the message of a ConfigError that is raised in the block."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
