"""FedAvg-ST (a baseline of Assign-Then-Contrast 2023): a FedAvg of its own for clients with the same or similar tasks.

Who has a similar task is known beforehand. Clients are told by their names: `imdb-0`, `imdb-7` and, in a federation with
`groups`, `imdb/client-3` are of the family `imdb`; a group is made of families or of single clients. Without groups every
family is one. One group is FedAvg, to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from motet.algorithms.fedavg import AvgState, FedAvg, Weighting
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Script, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer


@message
@dataclass(frozen=True, eq=False)
class GroupStates:
    groups: dict[str, AvgState]


@dataclass(frozen=True)
class Grouped:
    """Any algorithm of FedAvg's family, run within each group. Both go by one name: their client method is the same."""

    within: FedAvg
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    name: str = "fedavg_st"
    personal: bool = True

    @property
    def solver(self) -> Solver:
        return self.within.solver

    @property
    def server(self) -> ServerOptimizer:
        return self.within.server

    def init(self, start: InitialModels) -> GroupStates:
        first: dict[str, ClientId] = {}
        for client in start.clients:
            first.setdefault(self.group_of(client), client)
        if idle := [name for name in self.groups if name not in first]:
            raise ConfigError(
                f"{self.name}: no client is in group '{idle[0]}'; clients are called {start.clients[0]}, …."
            )
        return GroupStates({n: self.within.init(replace(start, shared=start.for_client(c))) for n, c in first.items()})

    def round(self, state: GroupStates, rnd: Round) -> Script[GroupStates]:
        after = dict(state.groups)
        for group, before in state.groups.items():
            members = tuple(c for c in rnd.cohort if self.group_of(c) == group)
            if members:
                after[group] = yield from self.within.round(before, replace(rnd, cohort=members))
        return GroupStates(after)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, own: Params | None) -> Work[tuple[Weighted, Params | None]]:
        return self.within.train(ctx, params, own)

    def view(self, state: GroupStates, client: ClientId) -> Params:
        """The model of the client's group; for somebody who is in none, that of the first."""
        group = self.group_of(client) if client else ""
        return self.within.view(state.groups.get(group, next(iter(state.groups.values()))), client)

    def assemble(self, ctx: Context, params: Params, own: Params | None) -> Params:
        return self.within.assemble(ctx, params, own)

    def group_of(self, client: ClientId) -> str:
        family = re.sub(r"/.*|[-_ .]?\d+$", "", client)
        if not self.groups:
            return family
        for group, names in self.groups.items():
            if client in names or family in names:
                return group
        said = "; ".join(f"{g}: {', '.join(n)}" for g, n in self.groups.items())
        raise ConfigError(f"{self.name}: client '{client}' is in no group ({said}); name it, or its family '{family}'.")


def fedavg_st(
    solver: Solver = Solver(optimizer="sgd"),
    groups: Mapping[str, tuple[str, ...]] = {},
    shared: tuple[str, ...] = ("all",),
    server: ServerOptimizer = Apply(),
    weighting: Weighting = "examples",
) -> Grouped:
    """A FedAvg of its own for each group of clients with similar tasks (FedAvg-ST of the ATC study)."""
    named = {group: (names,) if isinstance(names, str) else tuple(names) for group, names in groups.items()}
    return Grouped(FedAvg(solver, server, Layers.parse(*shared), weighting, name="fedavg_st"), named)
