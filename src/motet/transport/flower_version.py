"""Checks the version of the installed Flower."""

from __future__ import annotations

import importlib.metadata

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command

OLDEST, FIRST_TOO_NEW = (1, 41), (2, 0)  # as the extra `flower` says


def require_flower() -> None:
    """Raise an error if Flower is missing, or has another interface."""
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"transport.type=flower needs the package flwr. Run: {install_command('flower')}") from None
    major, minor = (int(part) for part in version.split(".")[:2])
    if not OLDEST <= (major, minor) < FIRST_TOO_NEW:
        raise ConfigError(
            f"Flower {version} is installed; Motet works with {OLDEST[0]}.{OLDEST[1]} and later versions below "
            f"{FIRST_TOO_NEW[0]}. Run: {install_command('flower')}"
        )
