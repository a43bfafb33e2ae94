"""Drift: the data of a client change over the rounds. Every example still belongs to one client.

The rows of a client are cut into phases of `rounds_per_phase` rounds. Each phase has its own mixture:

    gradual    q(t) = (1 − t)·q_first + t·q_last,   t from 0 in the first phase to 1 in the last
    sudden     a new draw for each phase

In a round, a client trains and is tested on the rows of the current phase. The last phase does not end.
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

DriftSchedule = Literal["gradual", "sudden"]


def drift(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    phases: int = 4,
    rounds_per_phase: int = 5,
    schedule: DriftSchedule = "gradual",
    by: str = "label",
) -> Partition:
    """Change each client's labels, or any other trait (by), over the rounds: a new mixture every rounds_per_phase."""
    check_positive("alpha", alpha, ALPHA_HINT)
    check_clients(clients, corpus.num_train)
    _check_phases(corpus, clients, phases, rounds_per_phase)
    trait = get_trait(corpus, by, seed)
    partition_seed = seed.derive("drift")
    prior = np.bincount(trait.codes[: corpus.num_train], minlength=len(trait.categories)) / corpus.num_train
    q = _sample_phase_mixtures(prior, alpha, clients, phases, schedule, partition_seed)

    def split(start: int, stop: int, purpose: str) -> ClientRows:
        rng = partition_seed.derive(purpose).numpy()
        rows = assign_rows(trait.codes[start:stop], q, rng, "largest_remainder")
        return _group_by_client(rows, clients, start)

    options = {"clients": clients, "alpha": alpha, "phases": phases, "rounds_per_phase": rounds_per_phase}
    recipe = {"type": "drift", **options, "schedule": schedule, **trait.settings, "seed": seed.root}
    return Partition(
        train=split(0, corpus.num_train, "train"),
        test=split(corpus.num_train, len(corpus), "test"),
        recipe=recipe,
        rounds_per_phase=rounds_per_phase,
        trait=trait.unless_column(corpus),
    )


def _check_phases(corpus: Corpus, clients: int, phases: int, rounds_per_phase: int) -> None:
    if phases < 2 or rounds_per_phase < 1:
        raise ConfigError(
            f"partition.phases is {phases} and partition.rounds_per_phase is {rounds_per_phase}; expected at least 2 "
            "phases of at least 1 round."
        )
    if clients * phases > corpus.num_train:
        raise ConfigError(
            f"partition: {clients} clients in {phases} phases need {clients * phases} training examples, but there are "
            f"{corpus.num_train}. Lower partition.clients or partition.phases."
        )


def _sample_phase_mixtures(
    prior: np.ndarray, alpha: float, clients: int, phases: int, schedule: DriftSchedule, seed: Seed
) -> np.ndarray:
    """Draw a mixture for each phase and client, [phases · clients, categories].

    Rows are assigned in this order. If a category runs out, it is missing in the last phase of all clients, not in all
    phases of the last client.
    """
    if schedule == "sudden":
        return sample_mixtures(prior, alpha, clients * phases, seed.derive("mixtures").numpy())
    first, last = (
        sample_mixtures(prior, alpha, clients, seed.derive(end, "mixtures").numpy()) for end in ("first", "last")
    )
    return np.concatenate([(1 - t) * first + t * last for t in np.linspace(0, 1, phases)])


def _group_by_client(phase_rows: ClientRows, clients: int, start: int) -> ClientRows:
    """Reorder rows from phase by phase to client by client, and add `start` to the row numbers."""
    phases = len(phase_rows) // clients
    order = np.arange(len(phase_rows)).reshape(phases, clients).T.ravel()
    pieces = ClientRows.from_lists([phase_rows[int(k)] for k in order])
    return ClientRows(pieces.rows + start, pieces.offsets, phases)
