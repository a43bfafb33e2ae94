"""A federation: who takes part, with which task, model and data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from motet.core.program import Start
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Work
from motet.datasets.corpus import Corpus
from motet.learning.context import Context, Site
from motet.learning.features import Examples, Features, Ragged
from motet.learning.model import Model
from motet.partitions.partition import Named, Numbered, Partition, Shares
from motet.tasks.language_model import LanguageModel, regrouped
from motet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Federation:
    """One corpus over many clients. In a simulation the server holds the global test set, and the union for comparison.

    `partition` divides the corpus's examples; `train` and `test` divide the rows that they became; `held` are the
    rows of the global test set, `public` those that everybody may read.
    """

    task: Task
    model: Model
    corpus: Corpus
    features: Features
    partition: Partition
    train: Shares
    test: Shares
    held: np.ndarray
    seed: Seed
    public: np.ndarray | None = None

    @property
    def clients(self) -> Numbered | Named:
        return self.partition.clients

    @cached_property
    def everywhere(self) -> dict[str, Examples]:
        """What simulated participants can all look at: the global test set, and the public texts if there are any."""
        open_ = {} if self.public is None else {"public": Examples(self.features, self.public)}
        return {"global": Examples(self.features, self.held), **open_}

    def site(self, client: ClientId, round: int = 0) -> Site:
        """Who a client is in a round; what it has may change with the rounds."""
        index, phase = self.partition.index(client), self.partition.phase(round)
        own = {side: Examples(self.features, shares.at(index, phase)) for side, shares in self._sides}
        return Site(self.task, self.model, {**own, **self.everywhere}, len(self.partition.train.at(index, phase)))

    @property
    def _sides(self) -> tuple[tuple[str, Shares], ...]:
        return (("train", self.train), ("test", self.test))

    @cached_property
    def server_site(self) -> Site:
        union = Examples(self.features, np.sort(self.train.rows))
        return Site(self.task, self.model, {"train": union, "union": union, **self.everywhere}, len(self.partition.train.rows))

    def start(self) -> Start:
        return Start(self.model.fresh, self.clients)

    def context(
        self,
        client: ClientId,
        round: int,
        address: str,
        perform: Callable[[str, Any], Work[Any]] | None = None,
        recall: Callable[[str], Any] = lambda program: None,
    ) -> Context:
        """What a client's method is given. Its seed depends on the method, not on the program: fedprox(mu=0) is FedAvg."""
        seed = self.seed.of("client", client, round, address.partition(".")[2])
        return Context(client, round, self.site(client, round), seed, perform, recall)

    def server_context(self, round: int) -> Context:
        return Context("the server", round, self.server_site, self.seed.of("server", round))


def arranged(
    task: Task, model: Model, corpus: Corpus, features: Features, partition: Partition, seed: Seed, max_tokens: int
) -> Federation:
    """Divide what the examples became (windows, pieces) as the examples themselves are divided."""
    first = features.first
    train, test = partition.train.expanded(first), partition.test.expanded(first)
    held = rows_of(np.arange(corpus.train, len(corpus)) if partition.held is None else partition.held, first)
    public = None if partition.public is None else rows_of(partition.public, first)
    if not (isinstance(task, LanguageModel) and task.group):
        return Federation(task, model, corpus, features, partition, train, test, held, seed, public)
    ids = features.columns["input_ids"]
    if not isinstance(ids, Ragged):
        raise TypeError("texts of a language model are ragged")
    shares = (train, test, Shares.of([public if public is not None else np.zeros(0, np.int64)]))
    pieces, ends = regrouped(ids, [rows for s in shares for rows in s.pieces()], max_tokens)
    labels = Ragged(pieces.values, pieces.offsets, -100)
    grouped = Features(f"{features.key}-{partition.digest}", {"input_ids": pieces, "labels": labels}, texts=features.texts)
    own, (a, b) = np.arange(ends[-1]), np.cumsum([len(s.offsets) - 1 for s in shares[:2]])
    divided = Shares(own, ends[: a + 1], train.phases), Shares(own, ends[a : b + 1], test.phases)
    seen = None if public is None else own[ends[b] :]
    return Federation(task, model, corpus, grouped, partition, *divided, own[ends[a] : ends[b]], seed, seen)


def rows_of(examples: np.ndarray, first: np.ndarray | None) -> np.ndarray:
    """What these examples became."""
    return Shares.of([examples]).expanded(first).rows
