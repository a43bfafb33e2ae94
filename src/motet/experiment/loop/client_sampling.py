"""Sample the clients that start in a round: uniformly, those that are idle, or by utility and speed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.checkpoint import RunProgress
from motet.experiment.loop.oort import LossRecorder, Observation, OortState, learn_from_round, sample_by_utility
from motet.experiment.recipe.run_config import CohortConfig
from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.mailbox import Mailbox


@dataclass(frozen=True, eq=False)
class CohortSampler:
    """Samples the cohorts of a run. With Oort, `recorder` has the losses of clients, and `network` their durations."""

    plan: RunPlan
    recorder: LossRecorder | None
    network: EmulatedTransport | None

    def sample(self, progress: RunProgress, mailbox: Mailbox) -> tuple[ClientId, ...]:
        """Return the clients that start in the round after `progress`."""
        config, federation = self.plan.cohort, self.plan.federation
        if progress.oort is None and not self.plan.is_asynchronous:
            return sample_cohort(config, federation.clients, progress.rounds, federation.seed)
        busy = mailbox.busy_clients if self.plan.is_asynchronous else set[ClientId]()
        who = (federation.clients, self._count_places(busy), progress.rounds, federation.seed, busy)
        if progress.oort is None:
            return sample_idle_clients(*who)
        return sample_by_utility(config.oort, progress.oort, *who)

    def _count_places(self, busy: Collection[ClientId]) -> int:
        """Return how many clients start: in an asynchronous round, as many as reply before it ends and can start at once."""
        if not self.plan.is_asynchronous:
            return self.plan.cohort_size
        queued = (self.plan.wait_policy.buffer or 1) - 1 if self.network is not None else 0
        return self.plan.cohort_size + queued - len(busy)

    def learn(self, progress: RunProgress, cohort: tuple[ClientId, ...], mailbox: Mailbox) -> OortState | None:
        """Return what is known about the clients after the round that followed `progress`; None without Oort."""
        recorder, network = self.recorder, self.network
        if recorder is None or network is None or progress.oort is None:
            return None
        seen = {c: Observation(recorder.take(c), network.durations[c]) for c in mailbox.replied}
        if not self.plan.is_asynchronous:
            elapsed = network.seconds - progress.traffic.network_seconds
            missing = [client for client in cohort if client not in seen]
            seen |= {client: Observation(0.0, elapsed) for client in missing}
            recorder.forget(set(missing) - mailbox.busy_clients)
        clients = self.plan.federation.clients
        return learn_from_round(self.plan.cohort.oort, progress.oort, clients, progress.rounds + 1, seen)


def make_recorder(plan: RunPlan, is_remote: bool) -> LossRecorder | None:
    """Return the recorder of the losses that cohorts are sampled by; None if they are sampled uniformly."""
    if plan.cohort.sampler != "oort":
        return None
    if is_remote:
        raise ConfigError(
            "cohort.sampler=oort reads the training loss of every client, which clients in other processes do not send; use "
            "transport.type=in_process, or cohort.sampler=seeded."
        )
    return LossRecorder(plan.algorithm)


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
