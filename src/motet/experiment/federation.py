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
from motet.learning.features import Examples, Features
from motet.learning.model import Model
from motet.partitions.partition import Named, Numbered, Partition
from motet.tasks import Classification


@dataclass(frozen=True, eq=False)
class Federation:
    """One corpus over many clients. In a simulation the server holds the global test set, and the union for comparison."""

    task: Classification
    model: Model
    corpus: Corpus
    features: Features
    partition: Partition
    seed: Seed

    @property
    def clients(self) -> Numbered | Named:
        return self.partition.clients

    @cached_property
    def everywhere(self) -> dict[str, Examples]:
        """What simulated participants can all look at: the global test set."""
        return {"global": Examples(self.features, np.arange(self.corpus.train, len(self.corpus)))}

    def site(self, client: ClientId) -> Site:
        index = self.partition.index(client)
        own = {
            "train": Examples(self.features, self.partition.train[index]),
            "test": Examples(self.features, self.partition.test[index]),
        }
        return Site(self.task, self.model, {**own, **self.everywhere})

    @cached_property
    def server_site(self) -> Site:
        union = Examples(self.features, np.arange(self.corpus.train))
        return Site(self.task, self.model, {"train": union, "union": union, **self.everywhere})

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
