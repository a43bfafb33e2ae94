"""Drift: what a client writes changes over the rounds, while every example is still its own alone.

A client's rows stand in order of time, cut into phases of `every` rounds. Each phase has a mixture of its own:

    gradual    q(t) = (1 − t)·q_first + t·q_last,   t from 0 in the first phase to 1 in the last
    sudden     a new draw for each phase

In a round a client trains on, and is tested on, the rows of the phase it is in. After the last phase nothing changes any more.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, assign_rows, sample_mixtures
from motet.partitions.partition import ClientRows, Partition, check_clients, check_positive
from motet.partitions.traits_by_name import get_trait


def drift(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    phases: int = 4,
    every: int = 5,
    course: Literal["gradual", "sudden"] = "gradual",
    by: str = "label",
) -> Partition:
    """Each client's mixture of labels (or of any column, by) changes over the rounds: a new phase every so many."""
    check_positive("alpha", alpha, ALPHA_HINT)
    if phases < 2 or every < 1:
        raise ConfigError(
            f"partition.phases is {phases} and partition.every {every}; expected 2 phases or more, of 1 round or more each."
        )
    check_clients(clients, corpus.num_train)
    if clients * phases > corpus.num_train:
        raise ConfigError(
            f"partition: {clients} clients in {phases} phases need {clients * phases} training examples, and there are "
            f"{corpus.num_train}; lower partition.clients or partition.phases."
        )
    trait, own = get_trait(corpus, by, seed), seed.derive("drift")
    prior = np.bincount(trait.codes[: corpus.num_train], minlength=len(trait.names)) / corpus.num_train
    q = _paths(prior, alpha, clients, phases, course, own)

    def dealt(first: int, last: int, purpose: str) -> ClientRows:
        return group_by_client(
            assign_rows(trait.codes[first:last], q, own.derive(purpose).numpy(), "largest_remainder"), clients, first
        )

    train, test = dealt(0, corpus.num_train, "train"), dealt(corpus.num_train, len(corpus), "test")
    made = {"clients": clients, "alpha": alpha, "phases": phases, "every": every, "course": course, **trait.settings}
    return Partition(
        train,
        test,
        {"type": "drift", **made, "seed": seed.root},
        rounds_per_phase=every,
        trait=trait.unless_column(corpus),
    )


def _paths(prior: np.ndarray, alpha: float, clients: int, phases: int, course: str, seed: Seed) -> np.ndarray:
    """A mixture for each phase and client, phase by phase: what runs out runs out late in time for all."""
    if course == "sudden":
        return sample_mixtures(prior, alpha, clients * phases, seed.derive("mixtures").numpy())
    ends = [sample_mixtures(prior, alpha, clients, seed.derive(side, "mixtures").numpy()) for side in ("first", "last")]
    times = np.linspace(0, 1, phases)
    return np.concatenate([(1 - t) * ends[0] + t * ends[1] for t in times])


def group_by_client(dealt: ClientRows, clients: int, first: int) -> ClientRows:
    """From shares phase by phase to shares client by client, each client's in order of time."""
    phases = len(dealt) // clients
    order = np.arange(len(dealt)).reshape(phases, clients).T.ravel()
    pieces = ClientRows.from_lists([dealt[int(k)] for k in order])
    return ClientRows(pieces.rows + first, pieces.offsets, phases)
