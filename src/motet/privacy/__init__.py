"""Differential privacy: a table of mechanisms, by where the noise is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def none() -> None:
    """No noise."""


def central(clip: float, noise: float, delta: float = 1e-5, budget: float | None = None, seeded: bool = False) -> Any:
    """Clients clip, the server adds Gaussian noise to the sum. The server must be trusted (McMahan et al. 2018)."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum("central", clip, noise_multiplier=noise, delta=delta, budget=budget, seeded=seeded)


def local(clip: float, noise: float, delta: float = 1e-5, budget: float | None = None, seeded: bool = False) -> Any:
    """Every client clips its reply and adds Gaussian noise to it. No other party has to be trusted."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum("local", clip, noise_multiplier=noise, delta=delta, budget=budget, seeded=seeded)


def distributed(
    clip: float,
    noise: float,
    delta: float = 1e-5,
    budget: float | None = None,
    colluders: float = 0.0,
    seeded: bool = False,
) -> Any:
    """Every client adds a share of the noise inside a secure sum. The server does not have to be trusted."""
    from motet.privacy.dp_sum import PrivateSum

    return PrivateSum(
        "distributed",
        clip,
        noise_multiplier=noise,
        delta=delta,
        budget=budget,
        seeded=seeded,
        colluders=colluders,
    )


PRIVACY: dict[str, Callable[..., Any]] = {"none": none, "central": central, "local": local, "distributed": distributed}
