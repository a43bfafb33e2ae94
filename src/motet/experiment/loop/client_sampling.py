"""Sample the clients that start in a round: uniformly, those that are idle, or by utility and speed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId, Program
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.checkpoint import RunProgress
from motet.experiment.loop.oort import OortState, UtilityRecorder, learn_from_round, sample_by_utility
from motet.experiment.recipe.run_config import CohortConfig
from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.mailbox import Mailbox, Observation
from motet.transport.requests import Transport
from motet.transport.stopwatch import Stopwatch


@dataclass(frozen=True, eq=False)
class CohortSampler:
    """Samples the cohorts of a run. `network` is the emulated network of a simulation."""

    plan: RunPlan
    network: EmulatedTransport | None

    def sample(self, progress: RunProgress, mailbox: Mailbox) -> tuple[ClientId, ...]:
        """Return the clients that start in the round after `progress`."""
        config, federation = self.plan.cohort, self.plan.federation
        if progress.oort is None and not self.plan.is_asynchronous:
            return sample_cohort(config, federation.clients, progress.rounds, federation.seed)
        busy = mailbox.busy_clients if self.plan.is_asynchronous else set[ClientId]()
        arguments = (federation.clients, self._count_places(busy), progress.rounds, federation.seed, busy)
        if progress.oort is None:
            return sample_idle_clients(*arguments)
        return sample_by_utility(config.oort, progress.oort, *arguments)

    def _count_places(self, busy: Collection[ClientId]) -> int:
        """Return how many clients start: in an asynchronous round, as many as reply before it ends and can start at once."""
        if not self.plan.is_asynchronous:
            return self.plan.cohort_size
        queued = (self.plan.wait_policy.buffer or 1) - 1 if self.network is not None else 0
        return self.plan.cohort_size + queued - len(busy)

    def learn(
        self, progress: RunProgress, cohort: tuple[ClientId, ...], mailbox: Mailbox, seconds: float
    ) -> OortState | None:
        """Return what is known about the clients after the round that followed `progress`; None without Oort.

        `seconds` is how long the round took.
        """
        if progress.oort is None:
            return None
        seen = dict(mailbox.replied)
        if not self.plan.is_asynchronous:
            seen |= {client: Observation(0.0, seconds) for client in cohort if client not in seen}
        clients = self.plan.federation.clients
        return learn_from_round(self.plan.cohort.oort, progress.oort, clients, progress.rounds + 1, seen)


def make_recorder(cohort: CohortConfig, algorithm: Program) -> UtilityRecorder | None:
    """Return the recorder of the utilities that cohorts are sampled by; None if they are sampled uniformly."""
    return UtilityRecorder(algorithm) if cohort.sampler == "oort" else None


def make_clock(
    plan: RunPlan, network: EmulatedTransport | None, transport: Transport, is_remote: bool
) -> EmulatedTransport | Stopwatch | None:
    """Return what knows the speed of clients: the emulated network, or a stopwatch if cohorts depend on real speeds."""
    if network is None and is_remote and plan.cohort.sampler == "oort":
        return Stopwatch(transport)
    return network


def sample_idle_clients(
    clients: ClientList, size: int, round: int, seed: Seed, busy: Collection[ClientId]
) -> tuple[ClientId, ...]:
    """Sample uniformly from the clients that are not busy, as many as there are up to `size`."""
    count = min(len(clients), size + len(busy))
    sample = seed.derive("cohort", round).numpy().choice(len(clients), count, replace=False)
    idle = [name for i in sample if (name := clients[int(i)]) not in busy]
    return tuple(sorted(idle[:size]))


def sample_cohort(config: CohortConfig, clients: ClientList, round: int, seed: Seed) -> tuple[ClientId, ...]:
    """Sample uniformly without replacement. A cohort of all clients keeps their order.

    With the sampler "round", NumPy's generator is seeded with the round's number, as in FedNLP: every algorithm has the
    same clients in the same round. With "even", every round has the clients that `evaluation.clients` selects, so a bound
    without exchange need not train models that nobody evaluates.
    """
    if config.size is None or config.size >= len(clients):
        return tuple(clients[i] for i in range(len(clients)))
    if config.sampler == "even":
        return evenly_spaced(clients, config.size)
    if config.sampler == "round":
        sample = np.random.RandomState(round).choice(len(clients), config.size, replace=False)
    else:
        sample = seed.derive("cohort", round).numpy().choice(len(clients), config.size, replace=False)
    return tuple(clients[int(i)] for i in np.sort(sample))


def evenly_spaced(clients: ClientList, count: int | None) -> tuple[ClientId, ...]:
    """Return `count` clients from the whole list: the first ones can be the most skewed, and all of one group."""
    count = len(clients) if count is None else min(count, len(clients))
    return tuple(clients[i * len(clients) // count] for i in range(count))
