"""Several algorithms run one after another as one algorithm, with one record and one checkpoint.

At the end of a phase each client receives its model, which is its initial model (`ctx.initial_params`) in the next
phase. The server continues from the mean of the models it sent. Layers that it did not send keep their initial
values there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.rebased import ModelParams, RebasedParams
from motet.core.script import ClientId, Program, Script, total, work
from motet.core.weighted import Weighted
from motet.learning.context import INITIAL_MODEL, Context


@dataclass(frozen=True)
class Phase:
    """An algorithm and its share of the rounds."""

    algorithm: Algorithm
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"{self.algorithm.name}: its share of the rounds is {self.share}; expected 0 to 1.")


@message
@dataclass(frozen=True, eq=False)
class PhaseState:
    """The current phase, its algorithm's state, all clients, and the model that the first phase started from."""

    index: int
    inner: Any
    clients: tuple[ClientId, ...]
    initial: Params


@message
@dataclass(frozen=True, eq=False)
class PhaseView:
    index: int
    inner: Any


@dataclass(frozen=True)
class PhaseHandover(Program):
    """Sends each client its model at the end of a phase. The reply is empty, so this also works in secure sums."""

    phases: tuple[Phase, ...]
    name: str = INITIAL_MODEL

    @work(reveals="sum")
    def receive(self, ctx: Context, view: PhaseView, client_state: Params | None) -> tuple[Weighted, Params | None]:
        algorithm = self.phases[view.index].algorithm
        params = algorithm.assemble(ctx, view.inner, ctx.read_state(algorithm.name))
        if isinstance(params, RebasedParams):
            raise ConfigError(f"{algorithm.name} changes frozen weights, so no other phase can follow it; put it last.")
        return _handover_reply(), params


@dataclass(frozen=True)
class Phases(Algorithm):
    phases: tuple[Phase, ...]
    name: str = "phases"

    @property
    def subprograms(self) -> tuple[Any, ...]:
        return (self.handover, *(phase.algorithm for phase in self.phases))

    @property
    def handover(self) -> PhaseHandover:
        return PhaseHandover(self.phases)

    @property
    def personal(self) -> bool:
        return any(phase.algorithm.personal for phase in self.phases)

    def init(self, start: InitialModels) -> PhaseState:
        return PhaseState(
            index=0,
            inner=self.phases[0].algorithm.init(start),
            clients=tuple(start.clients),
            initial=start.shared,
        )

    def round(self, state: PhaseState, rnd: Round) -> Script[PhaseState]:
        index, first_round, num_rounds = self.find_phase(rnd.index, rnd.rounds)
        while state.index < index:
            state = yield from self._start_next(state)
        phase_round = replace(rnd, index=rnd.index - first_round, rounds=num_rounds)
        inner = yield from self.phases[index].algorithm.round(state.inner, phase_round)
        return replace(state, inner=inner)

    def phase_rounds(self, index: int, rounds: int) -> range:
        """Return the rounds of a phase. The last phase has the rest."""
        counts = [int(phase.share * rounds + 1e-9) for phase in self.phases[:-1]]
        first = sum(counts[:index])
        return range(first, first + counts[index] if index < len(counts) else rounds)

    def find_phase(self, round_index: int, rounds: int) -> tuple[int, int, int]:
        """Return the phase of a round, the phase's first round, and its number of rounds."""
        last = len(self.phases) - 1
        index = next((i for i in range(last) if round_index < self.phase_rounds(i, rounds).stop), last)
        phase_rounds = self.phase_rounds(index, rounds)
        return index, phase_rounds.start, len(phase_rounds)

    def _start_next(self, state: PhaseState) -> Script[PhaseState]:
        views = {client: self.view(state, client) for client in state.clients}
        yield from total(self.handover.receive, views)
        personal: dict[ClientId, Params] = {client: view.inner for client, view in views.items()}
        start = InitialModels(
            shared=state.initial.updated(_mean_model(personal)), clients=state.clients, personal=personal
        )
        return replace(state, index=state.index + 1, inner=self.phases[state.index + 1].algorithm.init(start))

    def dummy_exchanges(self, state: PhaseState, rnd: Round) -> list[DummyExchange]:
        index, first_round, num_rounds = self.find_phase(rnd.index, rnd.rounds)
        phase_round = replace(rnd, index=rnd.index - first_round, rounds=num_rounds)
        exchanges, start = list[DummyExchange](), InitialModels(shared=state.initial, clients=state.clients)
        inner = state.inner
        while state.index < index:  # the first round of a phase starts with the handover
            if rnd.index == first_round:
                exchanges.append(self._dummy_handover(state))
            inner = self.phases[state.index + 1].algorithm.init(start)
            state = replace(state, index=state.index + 1, inner=inner)
        return exchanges + self.phases[index].algorithm.dummy_exchanges(inner, phase_round)

    def _dummy_handover(self, state: PhaseState) -> DummyExchange:
        view = self.view(state, state.clients[0])
        return DummyExchange(len(state.clients), payload=view, reply=_handover_reply())

    def view(self, state: PhaseState, client: ClientId) -> PhaseView:
        return PhaseView(state.index, self.phases[state.index].algorithm.view(state.inner, client))

    def assemble(self, ctx: Context, view: PhaseView, client_state: None) -> ModelParams | None:
        algorithm = self.phases[view.index].algorithm
        return algorithm.assemble(ctx, view.inner, ctx.read_state(algorithm.name))


def _handover_reply() -> Weighted:
    return Weighted(Params.from_scalars(received=1), 1.0)


def _mean_model(personal: Mapping[ClientId, Params]) -> Params:
    """Return the mean of the clients' models. If all clients share one model, return it without rounding errors."""
    distinct = list({id(params.flat): params for params in personal.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    mean = distinct[0].zeros_like()
    for client in sorted(personal):
        mean.flat.add_(personal[client].flat, alpha=1 / len(personal))
    return mean
