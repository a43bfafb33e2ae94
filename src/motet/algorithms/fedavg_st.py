"""FedAvg-ST (a baseline in Assign-Then-Contrast, Dong et al. 2022): a separate FedAvg for each group of similar tasks.

The groups are known in advance. A client's family is its name without the number: `imdb-0`, `imdb-7` and, in a
federation with `groups`, `imdb/client-3` belong to the family `imdb`. A group lists families or single clients.
Without groups, each family is a group. A single group is bitwise equal to FedAvg.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from motet.algorithms.fedavg import FedAvg, FedAvgState, Weighting
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer


@message
@dataclass(frozen=True, eq=False)
class GroupStates:
    groups: dict[str, FedAvgState]


@dataclass(frozen=True)
class GroupedFedAvg(Algorithm):
    """Runs an algorithm of the FedAvg family in each group. Both need the same name, which is part of the address."""

    fedavg: FedAvg
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    name: str = "fedavg_st"
    personal: bool = True

    def init(self, start: InitialModels) -> GroupStates:
        first_clients: dict[str, ClientId] = {}
        for client in start.clients:
            first_clients.setdefault(self.find_group(client), client)
        if empty := [group for group in self.groups if group not in first_clients]:
            raise ConfigError(
                f"{self.name}: group '{empty[0]}' has no clients; expected client names such as {start.clients[0]}."
            )
        return GroupStates(
            {
                group: self.fedavg.init(replace(start, shared=start.for_client(client)))
                for group, client in first_clients.items()
            }
        )

    def round(self, state: GroupStates, rnd: Round) -> Script[GroupStates]:
        groups = dict(state.groups)
        for group, group_state in state.groups.items():
            cohort = tuple(client for client in rnd.cohort if self.find_group(client) == group)
            if cohort:
                groups[group] = yield from self.fedavg.round(group_state, replace(rnd, cohort=cohort))
        return GroupStates(groups)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        return self.fedavg.train(ctx, params, client_state)

    def view(self, state: GroupStates, client: ClientId) -> Params:
        """Return the model of the client's group. A new client gets the model of the first group."""
        group = self.find_group(client) if client else ""
        return self.fedavg.view(state.groups.get(group, next(iter(state.groups.values()))), client)

    def assemble(self, ctx: Context, params: Params, client_state: Params | None) -> Params:
        return self.fedavg.assemble(ctx, params, client_state)

    def find_group(self, client: ClientId) -> str:
        family = re.sub(r"/.*|[-_ .]?\d+$", "", client)
        if not self.groups:
            return family
        for group, names in self.groups.items():
            if client in names or family in names:
                return group
        known = "; ".join(f"{group}: {', '.join(names)}" for group, names in self.groups.items())
        raise ConfigError(
            f"{self.name}: client '{client}' is in none of the groups ({known}); "
            f"add '{client}' or its family '{family}' to one of them."
        )


def fedavg_st(
    solver: Solver = Solver(optimizer="sgd"),
    groups: Mapping[str, tuple[str, ...]] = {},
    shared: tuple[str, ...] = ("all",),
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
) -> GroupedFedAvg:
    """A separate FedAvg for each group of clients with similar tasks (FedAvg-ST, a baseline of ATC)."""
    names = {group: (names,) if isinstance(names, str) else tuple(names) for group, names in groups.items()}
    fedavg = FedAvg(solver, server, shared=Layers.parse(*shared), weighting=weighting, name="fedavg_st")
    return GroupedFedAvg(fedavg, names)
