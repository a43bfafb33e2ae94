"""Programs one after another as one program: one command, one record, one resume.

What a phase leaves each client is sent to it once, when the next one begins, and is the model it then begins with
(`ctx.initial_params`); the server goes on from what it would have sent, and with the first model where it would have sent nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, total, work
from motet.core.weighted import Weighted
from motet.learning.context import INITIAL_MODEL, Context
from motet.learning.solver import Solver


@dataclass(frozen=True)
class Phase:
    """An algorithm, and its share of the rounds."""

    algorithm: Algorithm
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(
                f"the share of {self.algorithm.name} is {self.share}; it is a share of the rounds, from 0 to 1."
            )


@message
@dataclass(frozen=True, eq=False)
class PhaseState:
    """Which phase it is, what it knows, who takes part, and the model that all began with."""

    index: int
    inner: Any
    clients: tuple[ClientId, ...]
    first: Params


@message
@dataclass(frozen=True, eq=False)
class PhaseView:
    index: int
    inner: Any


@dataclass(frozen=True)
class Beginning:
    """Sends clients what a phase left them. The reply says nothing, so this too can run where only sums are revealed."""

    phases: tuple[Phase, ...]
    name: str = INITIAL_MODEL

    @work(reveals="sum")
    def receive(self, ctx: Context, view: PhaseView, before: Params | None) -> tuple[Weighted, Params | None]:
        left = self.phases[view.index].algorithm
        return Weighted(Params.from_scalars(received=1), 1.0), left.assemble(ctx, view.inner, ctx.read_state(left.name))


@dataclass(frozen=True)
class Phases:
    phases: tuple[Phase, ...]
    name: str = "phases"

    @property
    def subprograms(self) -> tuple[Any, ...]:
        return (self.beginning, *(p.algorithm for p in self.phases))

    @property
    def beginning(self) -> Beginning:
        return Beginning(self.phases)

    @property
    def personal(self) -> bool:
        return any(p.algorithm.personal for p in self.phases)

    @property
    def solver(self) -> Solver:
        """The last phase's, by which a run's time is judged."""
        found: Solver = self.phases[-1].algorithm.solver  # type: ignore[attr-defined]
        return found

    def init(self, start: InitialModels) -> PhaseState:
        return PhaseState(0, self.phases[0].algorithm.init(start), tuple(start.clients), start.shared)

    def round(self, state: PhaseState, rnd: Round) -> Script[PhaseState]:
        index, began, length = self.phase_at(rnd.index, rnd.rounds)
        while state.index < index:
            state = yield from self._next(state)
        algorithm = self.phases[index].algorithm
        inner = yield from algorithm.round(state.inner, replace(rnd, index=rnd.index - began, rounds=length))
        return replace(state, inner=inner)

    def phase_at(self, round: int, rounds: int) -> tuple[int, int, int]:
        """The phase of a round, the round it began with and how many it has; the last one has what is left."""
        began = 0
        for index, phase in enumerate(self.phases[:-1]):
            length = int(phase.share * rounds + 1e-9)
            if round < began + length:
                return index, began, length
            began += length
        return len(self.phases) - 1, began, rounds - began

    def _next(self, state: PhaseState) -> Script[PhaseState]:
        left = {client: self.view(state, client) for client in state.clients}
        yield from total(self.beginning.receive, left)
        own: dict[ClientId, Params] = {client: view.inner for client, view in left.items()}
        start = InitialModels(state.first.updated(_mean(own)), state.clients, own)
        return replace(state, index=state.index + 1, inner=self.phases[state.index + 1].algorithm.init(start))

    def view(self, state: PhaseState, client: ClientId) -> PhaseView:
        return PhaseView(state.index, self.phases[state.index].algorithm.view(state.inner, client))

    def assemble(self, ctx: Context, view: PhaseView, memory: None) -> Params | None:
        algorithm = self.phases[view.index].algorithm
        return algorithm.assemble(ctx, view.inner, ctx.read_state(algorithm.name))


def _mean(own: Mapping[ClientId, Params]) -> Params:
    """Where the next phase wants one model for all: the mean of the personal ones."""
    different = list({id(p.flat): p for p in own.values()}.values())
    if len(different) == 1:
        return different[0]
    count = len(own)
    mean = different[0].zeros_like()
    for client in sorted(own):
        mean.flat.add_(own[client].flat, alpha=1 / count)
    return mean
