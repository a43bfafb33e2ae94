"""Differential privacy as a rewriting of sums: each client clips its update, and noise is added to the update or to the sum.

    Σ clip(xᵢ, C) + N(0, (z·C)²·I), divided by the number of replies                 (McMahan et al. 2018; Abadi et al. 2016)

Every client has the same weight. A weight would reveal how much data a client has, and would let one client count for
many. With `central` the server adds the noise and must be trusted to do so. With `local` every client adds it to its
own reply and trusts nobody. With `distributed` every client adds a share of it to the integers of a secure sum
(`codecs.skellam`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from motet.codecs.clip import limit_norm
from motet.codecs.skellam import SkellamNoise
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Program, Script, find_client_method, work
from motet.core.weighted import RunningSum, TermLimits, Weighted
from motet.core.work import Work
from motet.privacy.noise_key import KEY_BYTES, derive_noise, digest_numbers

OnSum = Callable[[Collection[ClientId], str], None]  # the clients of a sum, and the key of its release


@message
@dataclass(frozen=True, eq=False)
class ClipRequest:
    """Run the method at `address` and clip its reply."""

    address: str
    payload: Any


@dataclass(frozen=True)
class PrivateSum(Program):
    """`noise_multiplier` is z: the standard deviation of the noise, in units of `clip`."""

    trust_model: Literal["central", "local", "distributed"]
    clip: float
    noise_multiplier: float
    delta: float = 1e-5
    budget: float | None = None
    seeded: bool = False  # noise from the run's seed: anybody who knows the recipe can subtract it
    colluders: float = 0.0  # distributed: share of clients that may tell the server their noise
    name: str = "private"
    noise_key: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES), repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.clip < float("inf"):
            raise ConfigError(f"privacy.clip is {self.clip}; expected the largest norm of an update, above 0.")
        if not self.noise_multiplier > 0:
            raise ConfigError(
                f"privacy.noise is {self.noise_multiplier}; expected the standard deviation of the noise in units of "
                "privacy.clip, above 0."
            )
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta is {self.delta}; expected a small probability, such as 1e-5.")
        if not 0 <= self.colluders < 1:
            raise ConfigError(
                f"privacy.colluders is {self.colluders}; expected a share of the clients, at least 0 and below 1."
            )

    def require_secure_sum(self, has_secure_sum: bool, problem: str = "there is none") -> None:
        """Raise an error if the noise needs a secure sum and there is none.

        `problem` describes the setting at fault.
        """
        if self.secure_sum_noise and not has_secure_sum:
            raise ConfigError(
                f"privacy.type={self.trust_model} adds noise to the integers of a secure sum, and {problem}; set "
                "secure.type=secagg (or secagg_plus, light_secagg), or privacy.type=local."
            )

    @property
    def secure_sum_noise(self) -> dict[str, SkellamNoise]:
        """The noise inside a secure sum, by the address of the client method whose replies get it."""
        if self.trust_model != "distributed":
            return {}
        noise = SkellamNoise(self.clip, self.noise_multiplier, colluders=self.colluders, seeded=self.seeded)
        return {find_client_method(self.clipped).address: noise}

    @property
    def max_sent_norm(self) -> float:
        """The largest norm of a reply, after all codecs. Codecs may change a reply that has its noise already."""
        return self.clip if self.trust_model == "central" else math.inf

    @property
    def term_limits(self) -> TermLimits:
        """What the server enforces again for every term of a sum: ε must not depend on the honesty of clients."""
        return TermLimits(self.max_sent_norm, max_weight=1.0)

    @property
    def secure_sum_limits(self) -> dict[str, float]:
        """The largest norm of a term inside a secure sum, by the address of the client method."""
        return {find_client_method(self.clipped).address: self.clip} if self.trust_model == "central" else {}

    def make_summation(self, seed: Seed, on_sum: OnSum) -> Callable[[Exchange], Script[Weighted]]:
        """Return the script that replaces the sums of a round. `on_sum` is called before the result is released.

        Central noise is a function of the sum, so a sum that a resumed run repeats is the same release. The noise of
        clients may be new each time, so every attempt counts, also one that never ends.
        """
        sum_count = 0

        def summation(exchange: Exchange) -> Script[Weighted]:
            nonlocal sum_count
            sum_count += 1
            requests = {client: ClipRequest(exchange.address, p) for client, p in exchange.payloads.items()}
            noise_seed, clients = seed.derive("noise", sum_count), tuple(exchange.payloads)
            is_central = self.trust_model == "central"
            mean: Weighted = yield Exchange(
                find_client_method(self.clipped).address,
                requests,
                "sum",
                partial(RunningSum, self.term_limits),
                on_start=_ignore if is_central else lambda: on_sum(clients, _release_key(noise_seed, os.urandom(8))),
            )
            if is_central:
                on_sum(clients, _release_key(noise_seed, digest_numbers(mean.value.flat)))
                return Weighted(self._add_noise(mean.value, 1 / mean.weight, noise_seed), mean.weight)
            return mean

        return summation

    @work(reveals="sum")
    def clipped(self, ctx: Any, request: ClipRequest, client_state: None) -> Work[tuple[Weighted, None]]:
        """Run the requested method, clip its reply, and give it weight 1."""
        if not isinstance(request, ClipRequest):
            raise PrivacyError(f"received a {type(request).__name__}; expected a ClipRequest. The request is rejected.")
        reply: Weighted = yield from ctx.invoke(request.address, request.payload)
        value = reply.value
        if not value.is_finite():
            if self.trust_model == "central":
                raise RunError("an update is not finite and cannot be clipped; lower solver.lr.")
            value = value.zeros_like()  # an error would tell the server about the texts, without noise
        value = Params(value.layout, limit_norm(value.flat, self.clip))
        if self.trust_model == "local":
            value = self._add_noise(value, 1.0, ctx.seed.derive("noise", request.address))
        return Weighted(value, 1.0), None

    def _add_noise(self, value: Params, factor: float, seed: Seed) -> Params:
        if self.seeded:
            rng = np.random.Generator(np.random.Philox(key=seed.to_int()))
        else:
            rng = derive_noise(self.noise_key, seed.to_int(), value.flat)
        scale = self.noise_multiplier * self.clip * factor
        noise = rng.standard_normal(value.flat.numel(), dtype=np.float64) * scale
        return Params(value.layout, (value.flat.double().cpu() + torch.from_numpy(noise)).to(value.flat.dtype))


def _release_key(noise_seed: Seed, digest: bytes) -> str:
    return f"{noise_seed.to_int():x}-{digest.hex()}"


def _ignore() -> None: ...
