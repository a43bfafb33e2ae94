"""Attacks by malicious clients, for benchmarks of robust rules. They run only in simulations.

Some clients change the updates that they send, others their training data (`experiment/build/data_poisoning.py`). Their
software follows the protocol otherwise: noise and masks come after the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.weighted import Weighted

# (update, seed of the client and round, seed of the round, which all attackers know) -> the update that is sent
ChangeUpdate = Callable[[Params, Seed, Seed], Params]
DataChange = Literal["labels", "trigger"]


@dataclass(frozen=True)
class Attack:
    """A share of the clients is malicious. `poisoned_rows` is the share of an attacker's training rows that get a trigger."""

    name: str
    share: float
    change_update: ChangeUpdate | None = None
    data_change: DataChange | None = None
    poisoned_rows: float = 1.0
    target: int = 0

    def __post_init__(self) -> None:
        for name, share in (("share", self.share), ("rows", self.poisoned_rows)):
            if not 0 <= share <= 1:
                raise ConfigError(f"attack.{name} is {share}; expected a share from 0 to 1.")

    def choose_attackers(self, clients: ClientList, seed: Seed) -> frozenset[ClientId]:
        count = math.ceil(self.share * len(clients) - 1e-9)
        order = seed.derive("attackers").numpy().permutation(len(clients))
        return frozenset(clients[int(index)] for index in order[:count])

    def tamper(self, reply: Any, seed: Seed, client: ClientId, round: int) -> Any:
        """Return what an attacker sends in place of an update. Counts and statistics stay as they are."""
        if self.change_update is None or not isinstance(reply, Weighted) or reply.value.flat.dtype != torch.float32:
            return reply
        round_seed = seed.derive("attack", round)
        return replace(reply, value=self.change_update(reply.value, round_seed.derive(client), round_seed))


def none() -> None:
    """All clients are honest."""


def sign_flip(share: float = 0.2, scale: float = 1.0) -> Attack:
    """Attackers send their update times −scale."""
    return Attack("sign_flip", share, lambda update, own, common: update * -scale)


def noise(share: float = 0.2, scale: float = 1.0) -> Attack:
    """Attackers send Gaussian noise with `scale` times the norm of their update."""
    return Attack("noise", share, lambda update, own, common: _random_direction(update, own, scale))


def collusion(share: float = 0.2, scale: float = 1.0) -> Attack:
    """All attackers send the same random direction, with `scale` times the norm of their update."""
    return Attack("collusion", share, lambda update, own, common: _random_direction(update, common, scale))


def label_flip(share: float = 0.2) -> Attack:
    """Attackers train on wrong labels: the last class in place of the first, and so on."""
    return Attack("label_flip", share, data_change="labels")


def backdoor(share: float = 0.2, rows: float = 0.5, target: int = 0, scale: float = 1.0) -> Attack:
    """Attackers teach the model to answer class `target` to texts with a trigger token. They scale their updates up."""
    scale_up = None if scale == 1 else lambda update, own, common: update * scale
    return Attack("backdoor", share, scale_up, data_change="trigger", poisoned_rows=rows, target=target)


def _random_direction(update: Params, seed: Seed, scale: float) -> Params:
    direction = torch.randn(update.flat.shape, generator=seed.torch()).to(update.flat)
    return Params(update.layout, direction * (scale * update.norm() / max(float(direction.norm()), 1e-30)))


ATTACKS: dict[str, Callable[..., Any]] = {
    "none": none,
    "sign_flip": sign_flip,
    "noise": noise,
    "collusion": collusion,
    "label_flip": label_flip,
    "backdoor": backdoor,
}
