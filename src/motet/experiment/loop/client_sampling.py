"""Who takes part in a round."""

from __future__ import annotations

import numpy as np

from motet.core.program import ClientList
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.experiment.recipe.run_config import CohortConfig


def sample_cohort(choice: CohortConfig, clients: ClientList, round: int, seed: Seed) -> tuple[ClientId, ...]:
    """A uniform draw without replacement from a generator of its own; everybody, in order, if all take part.

    FedNLP seeds numpy with the round's number and draws, so that every algorithm meets the same clients in the same round.
    """
    if choice.size is None or choice.size >= len(clients):
        return tuple(clients[i] for i in range(len(clients)))
    if choice.sampler == "round":
        drawn = np.random.RandomState(round).choice(len(clients), choice.size, replace=False)
    else:
        drawn = seed.derive("cohort", round).numpy().choice(len(clients), choice.size, replace=False)
    return tuple(clients[int(i)] for i in np.sort(drawn))
