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

    `partition` divides the corpus's examples; `train` and `test` divide the rows that they became, `held` are all test rows.
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

    @property
    def clients(self) -> Numbered | Named:
        return self.partition.clients

    @cached_property
    def everywhere(self) -> dict[str, Examples]:
        """What simulated participants can all look at: the global test set."""
        return {"global": Examples(self.features, self.held)}

    def site(self, client: ClientId) -> Site:
        index = self.partition.index(client)
        own = {"train": Examples(self.features, self.train[index]), "test": Examples(self.features, self.test[index])}
        return Site(self.task, self.model, {**own, **self.everywhere}, int(self.partition.train.sizes[index]))

    @cached_property
    def server_site(self) -> Site:
        union = Examples(self.features, np.sort(self.train.rows))
        return Site(self.task, self.model, {"train": union, "union": union, **self.everywhere}, self.corpus.train)

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
        return Context(client, round, self.site(client), seed, perform, recall)

    def server_context(self, round: int) -> Context:
        return Context("the server", round, self.server_site, self.seed.of("server", round))


def arranged(
    task: Task, model: Model, corpus: Corpus, features: Features, partition: Partition, seed: Seed, max_tokens: int
) -> Federation:
    """Divide what the examples became (windows, pieces) as the examples themselves are divided."""
    first = features.first
    every = Shares.cut(np.arange(corpus.train, len(corpus)), np.array([len(corpus) - corpus.train])).expanded(first)
    train, test = partition.train.expanded(first), partition.test.expanded(first)
    if not (isinstance(task, LanguageModel) and task.group):
        return Federation(task, model, corpus, features, partition, train, test, every.rows, seed)
    ids = features.columns["input_ids"]
    if not isinstance(ids, Ragged):
        raise TypeError("texts of a language model are ragged")
    everybody = [*(train[k] for k in range(len(train))), *(test[k] for k in range(len(test)))]
    pieces, ends = regrouped(ids, everybody, max_tokens)
    half = len(train)
    own = np.arange(ends[-1])
    labels = Ragged(pieces.values, pieces.offsets, -100)
    grouped = Features(f"{features.key}-{partition.digest}", {"input_ids": pieces, "labels": labels}, texts=features.texts)
    divided = Shares(own, ends[: half + 1]), Shares(own, ends[half:])
    return Federation(task, model, corpus, grouped, partition, *divided, own[ends[half] :], seed)
