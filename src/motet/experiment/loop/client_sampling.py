"""Sample the clients of a round."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.experiment.recipe.run_config import CohortConfig


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
