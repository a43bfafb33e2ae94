"""A federation: who takes part, with which task, model and data. Clients that are alike stand together in a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from motet.learning.context import Context, Participant
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.modules.model import Model
from motet.partitions.partition import ClientRows, NamedClients, NumberedClients, Partition
from motet.tasks.language_modeling import LanguageModeling, group_texts
from motet.tasks.task import Task


@dataclass(frozen=True)
class Members:
    """Some clients of a partition, in its order. `prefix` tells those of one corpus from those of another."""

    names: NumberedClients | NamedClients
    first: int
    last: int
    prefix: str = ""

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> ClientId:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.prefix + self.names[self.first + index]

    def __iter__(self) -> Iterator[ClientId]:
        return (self[i] for i in range(len(self)))

    def place(self, client: ClientId) -> int | None:
        """Where in the partition this client stands, if it is one of these."""
        try:
            found = self.names.index(client.removeprefix(self.prefix))
        except ValueError:
            return None
        return found if client.startswith(self.prefix) and self.first <= found < self.last else None


@dataclass(frozen=True)
class Everyone:
    """The clients of all groups, group by group."""

    parts: tuple[Members, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int) -> ClientId:
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(index)

    def __iter__(self) -> Iterator[ClientId]:
        return (client for part in self.parts for client in part)


@dataclass(frozen=True, eq=False)
class Group:
    """Clients with one task and one model, and each its part of one corpus.

    `partition` divides the corpus's examples; `train` and `test` divide the rows that they became; `held` are the
    rows of the global test set, `public` those that everybody may read, `dev` those by which the best round is chosen.
    """

    name: str
    task: Task
    model: Model
    corpus: Corpus
    features: Features
    partition: Partition
    train: ClientRows
    test: ClientRows
    held: np.ndarray
    members: Members
    public: np.ndarray | None = None
    dev: np.ndarray | None = None

    @cached_property
    def everywhere(self) -> dict[str, Examples]:
        """What simulated participants can all look at: the global test set; public texts and a development set if there are."""
        others = {"public": self.public, "dev": self.dev}
        open_ = {name: Examples(self.features, rows) for name, rows in others.items() if rows is not None}
        return {"global": Examples(self.features, self.held), **open_}

    @property
    def sizes(self) -> np.ndarray:
        """How many training examples each client of the group has."""
        sizes: np.ndarray = self.partition.train.sizes[self.members.first : self.members.last]
        return sizes

    def site(self, place: int, round: int = 0) -> Participant:
        """Who a client is in a round; what it has may change with the rounds."""
        phase = self.partition.phase(round)
        own = {
            side: Examples(self.features, s.in_phase(place, phase))
            for side, s in (("train", self.train), ("test", self.test))
        }
        return Participant(
            self.task, self.model, {**own, **self.everywhere}, len(self.partition.train.in_phase(place, phase))
        )

    @cached_property
    def union(self) -> Participant:
        """All of the corpus in one place: the server of a simulation, for comparison."""
        union = Examples(self.features, np.sort(self.train.rows))
        return Participant(
            self.task, self.model, {"train": union, "union": union, **self.everywhere}, len(self.partition.train.rows)
        )


@dataclass(frozen=True)
class Medley:
    """How a federation of several tasks is judged: by `score`, the mean of its groups' headlines."""

    name: str
    primary_metric: str = "score"
    metric_names: tuple[str, ...] = ("score",)


@dataclass(frozen=True, eq=False)
class Federation:
    """Groups of clients, and the server: it reads the first group's corpus with a model of its own.

    In a simulation the server holds the global test set and, where there is one corpus, the union for comparison.
    """

    groups: tuple[Group, ...]
    server: Group
    seed: Seed

    @cached_property
    def clients(self) -> Everyone:
        return Everyone(tuple(group.members for group in self.groups))

    @cached_property
    def task(self) -> Task | Medley:
        tasks = [group.task for group in self.groups]
        if len({(t.primary_metric, t.metric_names) for t in tasks}) == 1:
            return tasks[0]
        return Medley(", ".join(dict.fromkeys(t.name for t in tasks)))

    @property
    def develops(self) -> bool:
        """Whether every group, and the server, has a development set."""
        return all(group.dev is not None for group in (*self.groups, self.server))

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

    def group_of(self, client: ClientId) -> Group:
        return self._found(client)[0]

    def site(self, client: ClientId, round: int = 0) -> Participant:
        group, place = self._found(client)
        return group.site(place, round)

    def _found(self, client: ClientId) -> tuple[Group, int]:
        for group in self.groups:
            place = group.members.place(client)
            if place is not None:
                return group, place
        first, last = self.clients[0], self.clients[len(self.clients) - 1]
        raise ConfigError(f"there is no client '{client}'; there are {len(self.clients)}, {first} to {last}.")

    @cached_property
    def server_site(self) -> Participant:
        whole = self.server.union
        if len({id(group.corpus) for group in self.groups}) == 1:
            return whole
        return Participant(
            whole.task, whole.model, self.server.everywhere, 0
        )  # no model can be trained on all tasks at once

    def start(self) -> InitialModels:
        everybody = [group.model.initial_params for group in self.groups]
        return InitialModels(
            common_params([self.model.initial_params, *everybody]), self.clients, server=self.model.initial_params
        )

    def context(
        self,
        client: ClientId,
        round: int,
        address: str,
        invoke: Callable[[str, Any], Work[Any]] | None = None,
        read_state: Callable[[str], Any] = lambda program: None,
    ) -> Context:
        """What a client's method is given. Its seed depends on the method, not on the program: fedprox(mu=0) is FedAvg."""
        method = address.partition(".")[2]
        seed, pace = self.seed.derive("client", client, round, method), self.seed.derive("pace", round, method)
        return Context(client, round, self.site(client, round), seed, invoke, read_state, pace)

    def server_context(self, round: int) -> Context:
        return Context("the server", round, self.server_site, self.seed.derive("server", round))

    @property
    def readings(self) -> list[tuple[Model, Features]]:
        """Every model with what it reads, each once."""
        found = {(g.model.key, g.features.key): (g.model, g.features) for g in (*self.groups, self.server)}
        return list(found.values())


def arranged(
    name: str,
    task: Task,
    model: Model,
    corpus: Corpus,
    features: Features,
    partition: Partition,
    max_tokens: int,
    members: Members,
) -> Group:
    """Divide what the examples became (windows, pieces) as the examples themselves are divided."""
    first = features.example_offsets
    train, test = partition.train.expand(first), partition.test.expand(first)
    held = rows_of(
        np.arange(corpus.num_train, len(corpus)) if partition.global_test is None else partition.global_test, first
    )
    public, dev = (None if rows is None else rows_of(rows, first) for rows in (partition.public, partition.dev))
    if not (isinstance(task, LanguageModeling) and task.group):
        return Group(name, task, model, corpus, features, partition, train, test, held, members, public, dev)
    ids = features.columns["input_ids"]
    if not isinstance(ids, Ragged):
        raise TypeError("texts of a language model are ragged")
    apart = [rows if rows is not None else np.zeros(0, np.int64) for rows in (public, dev)]
    shares = (train, test, ClientRows.from_lists(apart[:1]), ClientRows.from_lists(apart[1:]))
    pieces, ends = group_texts(ids, [rows for s in shares for rows in s.phase_pieces()], max_tokens)
    labels = Ragged(pieces.values, pieces.offsets, -100)
    grouped = Features(
        f"{features.key}-{partition.digest}", {"input_ids": pieces, "labels": labels}, raw_columns=features.raw_columns
    )
    own, (a, b, c) = np.arange(ends[-1]), np.cumsum([len(s.offsets) - 1 for s in shares[:3]])
    divided = ClientRows(own, ends[: a + 1], train.phases), ClientRows(own, ends[a : b + 1], test.phases)
    seen = None if public is None else own[ends[b] : ends[c]]
    aside = None if dev is None else own[ends[c] :]
    return Group(name, task, model, corpus, grouped, partition, *divided, own[ends[a] : ends[b]], members, seen, aside)


def rows_of(examples: np.ndarray, first: np.ndarray | None) -> np.ndarray:
    """What these examples became."""
    return ClientRows.from_lists([examples]).expand(first).rows
