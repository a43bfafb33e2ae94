"""What has been spent of everybody's privacy: ε, for the noise that was added and the rounds that were really taken part in.

One client's whole contribution is protected. Which clients are neighbours of which data, and what is counted:

- cohorts that anybody could foretell (everybody, or `cohort.sampler=round`): the Gaussian mechanism as often as the busiest
  client took part; adding or removing a client moves a sum by at most the clip;
- cohorts drawn from a seed kept to oneself (`cohort.sampler=seeded`): sampled without replacement, in every round; replacing a
  client moves a sum by at most twice the clip;
- local noise: each client's own, by how often the busiest took part; any reply may stand for any other, twice the clip apart;
- noise inside a secure sum: by the divergences of Skellam noise (`orders`), as often as the busiest client took part. It is
  noise against the server too, which draws the cohorts and sees who answers: no cohort is a secret from it. A client that is
  left out is one that says nothing and still adds its part of the noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.privacy.dp_sum import PrivateSum
from motet.privacy.renyi import ORDERS, skellam_divergence


@dataclass
class PrivacyAccountant:
    """Counts sums by client. `cohort` of `clients` take part in a round; `secret`: nobody can foretell which."""

    private: PrivateSum
    clients: int
    cohort: int
    secret: bool
    spent: Counter[ClientId] = field(default_factory=Counter)
    sums: int = 0

    def spend(self, members: Collection[ClientId]) -> None:
        self.spent.update(tuple(members))
        self.sums += 1

    def epsilon(self, more: Collection[ClientId] = ()) -> float:
        """So far, or after one more sum over these clients."""
        sums = self.sums + bool(more)
        busiest = max([*self.spent.values(), *(self.spent[c] + 1 for c in more)], default=0)
        if not sums:
            return 0.0
        dp, half = self._accounting, self.private.noise / 2
        if self.private.where == "local":
            return self._composed(dp.GaussianDpEvent(half), busiest, replaced=True)
        if self.private.where == "distributed":
            return self._inside(busiest)
        plain = self._composed(dp.GaussianDpEvent(self.private.noise), busiest)
        if not self.secret or self.cohort >= self.clients:
            return plain
        event = dp.SampledWithoutReplacementDpEvent(self.clients, self.cohort, dp.GaussianDpEvent(half))
        return self._composed(event, sums, replaced=True)

    def _composed(self, event: Any, times: int, replaced: bool = False) -> float:
        dp = self._accounting
        relation = dp.NeighboringRelation.REPLACE_ONE if replaced else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
        accountant.compose(event, times)
        return float(accountant.get_epsilon(self.private.delta))

    def _inside(self, busiest: int) -> float:
        found = skellam_divergence(self.private.noise, clips=1)
        epsilon, _ = self._accounting.rdp.compute_epsilon(
            ORDERS, [busiest * found(k) for k in ORDERS], self.private.delta
        )
        return float(epsilon)

    @cached_property
    def _accounting(self) -> Any:
        try:
            import dp_accounting
            import dp_accounting.rdp
        except ImportError:
            raise ConfigError("counting privacy needs the package dp-accounting; pip install 'motet[dp]'") from None
        return dp_accounting
