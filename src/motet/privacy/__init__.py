"""Differential privacy: a table of where noise is added, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def none() -> None:
    """No noise."""


def central(clip: float, noise: float, delta: float = 1e-5, budget: float | None = None, seeded: bool = False) -> Any:
    """Clients clip, the server adds Gaussian noise to the sum; the server is trusted with it (McMahan et al. 2018)."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum("central", clip, noise, delta, budget, seeded)


def local(clip: float, noise: float, delta: float = 1e-5, budget: float | None = None, seeded: bool = False) -> Any:
    """Every client clips its reply and adds Gaussian noise to it; nobody is trusted."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum("local", clip, noise, delta, budget, seeded)


def distributed(
    clip: float,
    noise: float,
    delta: float = 1e-5,
    budget: float | None = None,
    colluders: float = 0.0,
    seeded: bool = False,
) -> Any:
    """Every client adds its part of the noise inside a secure sum, which has it all; the server is not trusted with it."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum("distributed", clip, noise, delta, budget, seeded, colluders)


PRIVACY: dict[str, Callable[..., Any]] = {"none": none, "central": central, "local": local, "distributed": distributed}
