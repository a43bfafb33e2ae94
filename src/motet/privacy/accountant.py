"""The privacy loss ε so far, for the noise that was added and the sums that each client took part in.

It protects a client's whole contribution. How sums are counted, and which datasets count as neighbors:

- `central`, predictable cohorts (all clients, or cohort.sampler=round): the Gaussian mechanism, as often as the most
  frequent client took part. Adding or removing a client changes a sum by at most the clip.
- `central`, secret cohorts (cohort.sampler=seeded): sampling without replacement, in every round. Replacing a client
  changes a sum by at most twice the clip.
- `local`: each client's own noise, as often as the most frequent client took part. Any reply may replace any other, and
  they differ by at most twice the clip.
- `distributed`: the divergence of Skellam noise (`renyi`), as often as the most frequent client took part. This noise
  also protects against the server. The server samples the cohorts and sees who replies, so no cohort is secret from
  it. A removed client is one that contributes zero and still adds its share of the noise.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.core.script import ClientId
from motet.privacy.accountant_log import AccountantLog
from motet.privacy.dp_sum import PrivateSum
from motet.privacy.renyi import ORDERS, skellam_divergence


@dataclass
class PrivacyAccountant:
    """Counts sums by client. In each round `cohort_size` of `client_count` clients take part."""

    mechanism: PrivateSum
    client_count: int
    cohort_size: int
    has_secret_cohorts: bool  # nobody can predict who is in a cohort
    sums_by_client: Counter[ClientId] = field(default_factory=Counter)
    sum_count: int = 0
    log: AccountantLog = field(default_factory=AccountantLog)

    def __post_init__(self) -> None:
        """Count what the log has. An interrupted run may have released sums after its last checkpoint."""
        self.restore(len(self.log.releases), self.log.sums_by_client())

    def restore(self, sum_count: int, sums_by_client: Mapping[ClientId, int]) -> None:
        """Count at least these sums."""
        self.sum_count = max(self.sum_count, sum_count)
        self.sums_by_client |= Counter(sums_by_client)

    def record_sum(self, clients: Collection[ClientId], key: str = "") -> None:
        """Count a sum before it is released. The same key means the same numbers and the same noise."""
        if self.log.append(key or os.urandom(16).hex(), clients):
            self.sums_by_client.update(tuple(clients))
            self.sum_count += 1

    def epsilon(self, next_cohort: Collection[ClientId] = ()) -> float:
        """Return ε so far, or after one more sum over `next_cohort`."""
        sum_count = self.sum_count + bool(next_cohort)
        counts = [*self.sums_by_client.values(), *(self.sums_by_client[client] + 1 for client in next_cohort)]
        most_frequent = max(counts, default=0)
        if not sum_count:
            return 0.0
        dp, noise = self._dp_accounting, self.mechanism.noise_multiplier
        if self.mechanism.trust_model == "local":
            return self._compose(dp.GaussianDpEvent(noise / 2), most_frequent, replace_one=True)
        if self.mechanism.trust_model == "distributed":
            return self._compose_skellam(most_frequent)
        if not self.has_secret_cohorts or self.cohort_size >= self.client_count:
            return self._compose(dp.GaussianDpEvent(noise), most_frequent)
        event = dp.SampledWithoutReplacementDpEvent(self.client_count, self.cohort_size, dp.GaussianDpEvent(noise / 2))
        return self._compose(event, sum_count, replace_one=True)

    def _compose(self, event: Any, count: int, replace_one: bool = False) -> float:
        dp = self._dp_accounting
        relation = dp.NeighboringRelation.REPLACE_ONE if replace_one else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
        accountant.compose(event, count)
        return float(accountant.get_epsilon(self.mechanism.delta))

    def _compose_skellam(self, count: int) -> float:
        divergence = skellam_divergence(self.mechanism.noise_multiplier, clips=1)
        divergences = [count * divergence(order) for order in ORDERS]
        epsilon, _ = self._dp_accounting.rdp.compute_epsilon(ORDERS, divergences, self.mechanism.delta)
        return float(epsilon)

    @cached_property
    def _dp_accounting(self) -> Any:
        try:
            import dp_accounting
            import dp_accounting.rdp
        except ImportError:
            raise ConfigError(
                f"privacy accounting needs the package dp-accounting. Run: {install_command('dp')}"
            ) from None
        return dp_accounting
