"""Differential privacy as a rewriting of sums: every update is clipped where it is made, and noise is added to it or the sum.

    Σ clip(xᵢ, C) + N(0, (z·C)²·I), divided by how many answered                     (McMahan et al. 2018; Abadi et al. 2016)

Every client counts alike: a weight would say how much data it has, and would let one client count for many. With `central`
the server adds the noise and is trusted to; with `local` every client adds it to its own reply and trusts nobody; with
`distributed` every client adds a part of it to the integers of a secure sum (`codecs.skellam`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from motet.codecs.clip import Clip
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Script, method_address, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work

Spend = Callable[[Collection[ClientId]], None]


@message
@dataclass(frozen=True, eq=False)
class ClipRequest:
    """Do this work, and clip its reply."""

    address: str
    payload: Any


@dataclass(frozen=True)
class PrivateSum:
    """`noise` is the multiplier z: the deviation of the noise, in units of `clip`."""

    where: Literal["central", "local", "distributed"]
    clip: float
    noise: float
    delta: float = 1e-5
    budget: float | None = None
    seeded: bool = False  # noise from the run's seed, which anybody who knows the recipe can take off again
    colluders: float = 0.0  # distributed: the share of clients that may tell the server their part of the noise
    name: str = "private"

    def __post_init__(self) -> None:
        if not 0 < self.clip < float("inf"):
            raise ConfigError(f"privacy.clip is {self.clip}; it is the length an update is cut to, above 0.")
        if not self.noise > 0:
            raise ConfigError(f"privacy.noise is {self.noise}; it is the noise's deviation over privacy.clip, above 0.")
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta is {self.delta}; it is a small probability, such as 1e-5.")
        if not 0 <= self.colluders < 1:
            raise ConfigError(
                f"privacy.colluders is {self.colluders}; it is a share of the clients, at least 0 and below 1."
            )

    def check_under(self, secure: bool, lacking: str = "there is none") -> None:
        """Noise inside a sum needs a secure one; `lacking` says where it was looked for."""
        if self.inside and not secure:
            raise ConfigError(
                f"privacy.type={self.where} puts noise inside the integers of a secure sum, and {lacking}; set "
                "secure.type=secagg (or secagg_plus, light_secagg), or privacy.type=local."
            )

    @property
    def inside(self) -> dict[str, SkellamNoise]:
        """The noise to be put inside a secure sum's integers, by the address of the work whose replies it is for."""
        if self.where != "distributed":
            return {}
        return {method_address(self.clipped): SkellamNoise(self.clip, self.noise, self.colluders, self.seeded)}

    def sums(self, seed: Seed, spend: Spend) -> Callable[[Exchange], Script[Weighted]]:
        """What stands in for a round's sums; `spend` is told whose updates went into each."""
        made = 0

        def summation(exchange: Exchange) -> Script[Weighted]:
            nonlocal made
            made += 1
            found = yield from total(
                self.clipped, {c: ClipRequest(exchange.address, p) for c, p in exchange.payloads.items()}
            )
            spend(exchange.payloads)
            if self.where == "central":
                return Weighted(self._noisy(found.value, 1 / found.weight, seed.derive("noise", made)), found.weight)
            return found

        return summation

    @work(reveals="sum")
    def clipped(self, ctx: Any, ask: ClipRequest, memory: None) -> Work[tuple[Weighted, None]]:
        if not isinstance(ask, ClipRequest):
            raise PrivacyError(f"a {type(ask).__name__} came where the work to clip belongs; it is refused.")
        reply: Weighted = yield from ctx.invoke(ask.address, ask.payload)
        if not reply.value.is_finite():
            raise RunError("an update is not finite, and cannot be clipped; lower the learning rate.")
        value = Params(reply.value.layout, Clip(self.clip).shortened(reply.value.flat))
        if self.where == "local":
            value = self._noisy(value, 1.0, ctx.seed.derive("noise", ask.address))
        return Weighted(value, 1.0), None

    def _noisy(self, value: Params, factor: float, seed: Seed) -> Params:
        key = seed.to_int() if self.seeded else int.from_bytes(os.urandom(16), "little")
        rng = np.random.Generator(np.random.Philox(key=key))
        drawn = rng.standard_normal(value.flat.numel(), dtype=np.float64) * (self.noise * self.clip * factor)
        return Params(value.layout, (value.flat.double().cpu() + torch.from_numpy(drawn)).to(value.flat.dtype))
