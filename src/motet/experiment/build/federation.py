"""A federation: clients with their tasks, models and data. Clients with the same task and model form a group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.params import common_params
from motet.core.program import InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Work
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.experiment.build.client_lists import ClientRange, ClientRanges
from motet.learning.context import Context, Participant
from motet.learning.data.features import Examples, Features
from motet.learning.modules.model import Model
from motet.partitions.partition import ClientRows, Partition
from motet.tasks.task import Task

LOCAL_DEV = "local_dev"  # the split with the rows of the development set that were held out from the client


@dataclass(frozen=True, eq=False, repr=False)
class ClientGroup:
    """Clients with the same task and model, each with its share of one corpus.

    `partition` divides the examples of the corpus, and `train` and `test` the rows of `features`: a long example may
    have several rows. `global_test_rows`, `public_rows` (of texts that all clients may read) and `dev_rows` (of the
    development set) are rows of `features` too.
    """

    name: str
    task: Task
    model: Model
    corpus: Corpus
    features: Features
    partition: Partition
    train: ClientRows
    test: ClientRows
    global_test_rows: np.ndarray
    clients: ClientRange
    inspection: CorpusInspection | None = None  # None: the corpus was built in memory
    public_rows: np.ndarray | None = None
    dev_rows: np.ndarray | None = None
    local_dev: ClientRows | None = None  # the rows of the development set by client
    backdoor_rows: np.ndarray | None = None  # test texts with the trigger of an attack

    @cached_property
    def shared_splits(self) -> dict[str, Examples]:
        """The splits that all participants of a simulation can read: global test set, public texts, dev set."""
        optional = {"public": self.public_rows, "dev": self.dev_rows, "backdoor": self.backdoor_rows}
        splits = {name: Examples(self.features, rows) for name, rows in optional.items() if rows is not None}
        return {"global": Examples(self.features, self.global_test_rows), **splits}

    @property
    def sizes(self) -> np.ndarray:
        """The number of training examples of each client in the group."""
        sizes: np.ndarray = self.partition.train.sizes[self.clients.start : self.clients.stop]
        return sizes

    @property
    def notes(self) -> list[str]:
        """What the task has to say about the texts, such as how many are truncated."""
        return self.task.describe_features(self.features, self.model)

    def participant(self, index: int, round: int = 0) -> Participant:
        """Return a client, by its index in the partition, with the data that it has in a round."""
        phase = self.partition.phase(round)
        own = {
            name: Examples(self.features, shares.in_phase(index, phase))
            for name, shares in (("train", self.train), ("test", self.test))
        }
        if self.local_dev is not None:
            own[LOCAL_DEV] = Examples(self.features, self.local_dev[index])
        return Participant(
            task=self.task,
            model=self.model,
            splits={**own, **self.shared_splits},
            size=len(self.partition.train.in_phase(index, phase)),
        )

    @cached_property
    def pooled(self) -> Participant:
        """A participant with the training data of all clients: the server of a simulation, for comparison."""
        union = Examples(self.features, np.sort(self.train.rows))
        return Participant(
            task=self.task,
            model=self.model,
            splits={"train": union, "union": union, **self.shared_splits},
            size=len(self.partition.train.rows),
        )


@dataclass(frozen=True)
class MultiTaskMetrics:
    """How a federation of several tasks is evaluated: by `score`, the mean of the groups' primary metrics."""

    name: str
    primary_metric: str = "score"
    metric_names: tuple[str, ...] = ("score",)


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Groups of clients, and a server with the first group's corpus and the model of the recipe's top level.

    In a simulation the server has the global test set and, if there is one corpus, all training data for comparison.
    """

    groups: tuple[ClientGroup, ...]
    server: ClientGroup
    seed: Seed

    def __repr__(self) -> str:
        """Describe the federation without its texts, which may be private."""
        groups = ", ".join(f"{group.name} ({group.task.name}, {len(group.clients)} clients)" for group in self.groups)
        return f"Federation({groups})"

    @cached_property
    def clients(self) -> ClientRanges:
        return ClientRanges(tuple(group.clients for group in self.groups))

    @cached_property
    def task(self) -> Task | MultiTaskMetrics:
        tasks = [group.task for group in self.groups]
        if len({(t.primary_metric, t.metric_names) for t in tasks}) == 1:
            return tasks[0]
        return MultiTaskMetrics(", ".join(dict.fromkeys(t.name for t in tasks)))

    @property
    def has_dev_set(self) -> bool:
        """True if the server and every group have a development set."""
        return all(group.dev_rows is not None for group in (*self.groups, self.server))

    @property
    def model(self) -> Model:
        return self.server.model

    @property
    def corpus(self) -> Corpus:
        return self.server.corpus

    @property
    def features(self) -> Features:
        return self.server.features

    @property
    def partition(self) -> Partition:
        return self.server.partition

    @property
    def test_digest(self) -> str:
        """A digest of the texts of the global test set. Some partitions choose its rows."""
        fingerprint, rows = self.corpus.fingerprint, self.partition.global_test
        if rows is None:
            return fingerprint
        return hashlib.sha256(fingerprint.encode() + np.asarray(rows, np.int64).tobytes()).hexdigest()[:24]

    @property
    def models_with_features(self) -> list[tuple[Model, Features]]:
        """Every pair of a model and the features that it reads, once."""
        pairs = {(g.model.key, g.features.key): (g.model, g.features) for g in (*self.groups, self.server)}
        return list(pairs.values())

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for group in self.groups for note in group.notes))

    def group_for(self, client: ClientId) -> ClientGroup:
        return self._find(client)[0]

    def participant(self, client: ClientId, round: int = 0) -> Participant:
        """Return a client with the data that it has in a round."""
        group, index = self._find(client)
        return group.participant(index, round)

    def _find(self, client: ClientId) -> tuple[ClientGroup, int]:
        """Return the client's group, and its index in the partition."""
        for group in self.groups:
            index = group.clients.partition_index(client)
            if index is not None:
                return group, index
        first, last = self.clients[0], self.clients[len(self.clients) - 1]
        raise ConfigError(f"there is no client '{client}'; there are {len(self.clients)}, {first} to {last}.")

    @cached_property
    def server_participant(self) -> Participant:
        pooled = self.server.pooled
        if len({id(group.corpus) for group in self.groups}) == 1:
            return pooled
        # With several corpora there is no training data: no single model can be trained on all tasks.
        return Participant(task=pooled.task, model=pooled.model, splits=self.server.shared_splits, size=0)

    def initial_models(self) -> InitialModels:
        models = [self.model.initial_params, *(group.model.initial_params for group in self.groups)]
        return InitialModels(shared=common_params(models), clients=self.clients, server=self.model.initial_params)

    def context(
        self,
        client: ClientId,
        round: int,
        address: str,
        invoke: Callable[[str, Any], Work[Any]] | None = None,
        read_state: Callable[[str], Any] = lambda program: None,
    ) -> Context:
        """Return the context of a client method.

        Its seed depends on the method's name, not on the program's: with mu=0, FedProx trains exactly as FedAvg does.
        """
        method = address.partition(".")[2]
        return Context(
            client=client,
            round=round,
            participant=self.participant(client, round),
            seed=self.seed.derive("client", client, round, method),
            invoke=invoke,
            read_state=read_state,
            shuffle_seed=self.seed.derive("pace", round, method),
        )

    def server_context(self, round: int) -> Context:
        return Context(
            client="the server",
            round=round,
            participant=self.server_participant,
            seed=self.seed.derive("server", round),
        )
