"""The server's view of clients that bring their own data: names and groups. Their data stays with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, RunError
from motet.core.program import ClientList, InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import CorpusInspection, inspect_corpus
from motet.datasets.load_corpus import DataConfig
from motet.experiment.build.federation import ClientGroup, Federation, MultiTaskMetrics
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.deploy.allow_list import load_allowed
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.recipe.run_config import ComponentConfig, GroupConfig, RunConfig
from motet.tasks import Task


@dataclass(frozen=True, eq=False)
class RemoteFederation:
    """Clients with their own data. `local` has the server's texts: labels, vocabulary and the global test set."""

    local: Federation
    clients: ClientList
    groups: Mapping[ClientId, str]

    @property
    def seed(self) -> Seed:
        return self.local.seed

    @property
    def notes(self) -> list[str]:
        return self.local.notes  # about the server's texts

    @property
    def task(self) -> Task | MultiTaskMetrics:
        return self.local.task

    def group_for(self, client: ClientId) -> ClientGroup:
        name = self.groups.get(client, "")
        return next((group for group in self.local.groups if group.name == name), self.local.groups[0])

    def initial_models(self) -> InitialModels:
        return replace(self.local.initial_models(), clients=self.clients)

    def server_context(self, round: int) -> Any:
        return self.local.server_context(round)

    def context(self, client: ClientId, *_: Any) -> Any:
        raise RunError(f"the data of {client} is not on this machine; run this on the machine of {client}.")


def build_server_federation(config: RunConfig, options: NetworkOptions) -> Federation:
    """Build the federation on the server.

    If clients bring their own data, the server trains on none of its texts. A file of its own, without a second file of
    test rows, is the global test set as a whole.
    """
    if not options.clients_bring_data:
        return build_federation(config)
    undivided = ComponentConfig("uniform", {"clients": 1})
    groups = tuple(
        replace(group, clients=1, partition=undivided, data=_accept_leak(group.data)) for group in config.groups
    )
    undivided_config = replace(config, partition=undivided, groups=groups, data=_accept_leak(config.data))
    federation = build_federation(undivided_config)
    inspect = cache(partial(inspect_corpus, is_test_set=True))  # groups may share a corpus
    return Federation(
        groups=tuple(
            _evaluate_all(*pair, inspect) for pair in zip(config.client_groups, federation.groups, strict=True)
        ),
        server=_evaluate_all(config.client_groups[0], federation.server, inspect),
        seed=federation.seed,
    )


def _accept_leak(data: DataConfig) -> DataConfig:
    """Accept equal training and test texts, because nobody trains on the texts of the server."""
    return replace(data, accept=tuple(dict.fromkeys([*data.accept, "leak"])))


def _evaluate_all(
    config: GroupConfig, group: ClientGroup, inspect: Callable[[Corpus], CorpusInspection]
) -> ClientGroup:
    """Return the group with all rows of its corpus in the global test set, unless the test rows are named."""
    if config.data.name is not None or config.data.test is not None:
        return group
    rows = np.union1d(group.train.rows, group.test.rows)
    return replace(group, global_test_rows=rows, inspection=inspect(group.corpus))


def expect_clients(local: Federation, options: NetworkOptions) -> Federation | RemoteFederation:
    """Return the federation that a run begins with, before its clients have joined. Unknown names are numbers."""
    if not options.clients_bring_data:
        return local
    names = map(str, range(options.clients or 0)) if options.allow is None else load_allowed(options.allow)
    return RemoteFederation(local=local, clients=tuple(names), groups={})


def check_remote_data(config: RunConfig, options: NetworkOptions) -> None:
    """Reject settings that need the data of all clients in one place."""
    share = max(group.data.dev_share for group in config.client_groups)
    if options.clients_bring_data and share:
        raise ConfigError(
            f"data.dev_share is {share:g}, but a development set needs rows of all clients, and these clients keep "
            "their data; leave it out."
        )
    weights = [group.task.options.get("class_weights") for group in config.client_groups]
    if options.clients_bring_data and "balanced" in weights:
        raise ConfigError(
            "task.class_weights is balanced, but the server does not know how many rows of each label its clients have; "
            "give the weights, such as task.class_weights={yes: 2}."
        )
    if options.clients_bring_data and config.evaluation.save_example_scores:
        raise ConfigError(
            "evaluation.save_example_scores is true, but clients with their own data never send a row per example; "
            "leave it out."
        )
