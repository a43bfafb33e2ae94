"""ATC's second stage: clients learn their own tasks, near those that learn alike and apart from the others (section 3.3).

A round has two exchanges. First every client says what it makes of the synthetic instances; then each trains on

    task loss − log( s⁺ / (s⁺ + s⁻) )                                                                              (eq. 3)

with its neighbours of the round before as positives and all others as negatives, and sends back what its encoder learnt:

    wₙ ← wₙ + Σ_{i ∈ Kₙ} |Dᵢ|/|D_Kₙ| · Δwᵢ,   Kₙ: the K nearest by the cosine of the encoders' updates, n among them  (eq. 4)

Everything but the encoder stays with the client. In the first round nobody has neighbours, so nothing is contrasted; nor is it
where K leaves no negatives, as the loss would be 0 whatever the model does. The authors' code sends everybody everybody's
representations; the mean of the positives and the negatives are all that is used, so those are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from motet.algorithms.atc.backbone_state import ENCODER, NAMING, Own, backbones, moments_kept, moments_taken
from motet.algorithms.atc.synthetic_states import Between, Synthetic
from motet.algorithms.update_similarity import mean_of, ranked
from motet.core.errors import ConfigError, RunError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, to_all, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.jobs import ExtraExamples, LRHorizon
from motet.learning.objectives.atc_objectives import ContrastiveTask, Representations
from motet.learning.solver import Solver

NOTED = 100  # nearest of each client that are written down of a round


@message
@dataclass(frozen=True, eq=False)
class Peers:
    """A client's encoder, and what others make of the instances: [instances, width] and [instances, others, width]."""

    encoder: Params
    near: Tensor | None
    far: Tensor | None
    round: int
    rounds: int


@message
@dataclass(frozen=True, eq=False)
class ContrastState:
    models: dict[ClientId, Params]
    ranking: dict[ClientId, tuple[ClientId, ...]]
    naming: Params | None  # until the synthetic instances are made


@dataclass(frozen=True)
class Contrast:
    solver: Solver
    neighbours: int = 8  # the client itself is one of them
    temperature: float = 1.0
    pairing: Literal["drawn", "by_index"] = "drawn"
    contrasting: bool = True  # else neighbours only average, and nothing synthetic is made
    between: Between = Between()
    name: str = "contrast"
    personal: bool = True

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise ConfigError(f"atc.neighbours is {self.neighbours}; a client is its own nearest, so it is at least 1.")

    @property
    def subprograms(self) -> tuple[Between]:
        return (self.between,)

    def init(self, start: InitialModels) -> ContrastState:
        return ContrastState(backbones(start, ENCODER), {}, start.shared.select_layers(NAMING))

    def round(self, state: ContrastState, rnd: Round) -> Script[ContrastState]:
        if state.naming is not None and self.contrasting:
            yield from self.between.share(state.naming, sorted(state.models), rnd)
        seen: dict[ClientId, Tensor] = {}
        if state.ranking and self.contrasting:
            seen = yield from gather(self.represent, to_all(rnd.cohort, None))
        replies = yield from gather(self.learn, {c: self._peers(c, state, seen, rnd) for c in rnd.cohort})
        learnt = {c: reply for c, reply in replies.items() if reply.weight > 0}
        ranking = ranked({c: reply.value for c, reply in learnt.items()})
        yield Note(values={"neighbours": {c: list(order[:NOTED]) for c, order in ranking.items()}})
        moved = {c: state.models[c] + mean_of(learnt, order[: self.neighbours]) for c, order in ranking.items()}
        models = {**state.models, **{c: rnd.offload(model) for c, model in moved.items()}}
        return ContrastState(models, {**state.ranking, **ranking}, None)

    def _peers(self, client: ClientId, state: ContrastState, seen: Mapping[ClientId, Tensor], rnd: Round) -> Peers:
        known = [c for c in state.ranking.get(client, ()) if c in seen]
        around = known[: self.neighbours]
        near = [seen[c] for c in around if c != client]
        far = [seen[c] for c in sorted(known) if c not in around]
        peers = Peers(state.models[client], None, None, rnd.index, rnd.rounds)
        if not near or not far:
            return peers
        return replace(peers, near=torch.stack(near).mean(0), far=torch.stack(far, 1))

    @work(reveals="each")
    def represent(self, ctx: Context, _: None, own: Own | None) -> Work[tuple[Tensor, None]]:
        """The encoder has no part in it: synthetic states stand in for what it would say."""
        params = ctx.initial_params.updated(own.params if own else None)
        found = yield from ctx.infer(params, self._synthetic(ctx), Representations())
        return found["representations"], None

    @work(reveals="each")
    def learn(self, ctx: Context, peers: Peers, own: Own | None) -> Work[tuple[Weighted, Own | None]]:
        steps = self.solver.num_steps(len(ctx.participant.split("train")))
        if not steps:
            return Weighted(peers.encoder.zeros_like(), 0.0), own
        before = self.assemble(ctx, peers.encoder, own)
        objective, beside = ctx.participant.task.objective, None
        if peers.near is not None and peers.far is not None:
            objective = ContrastiveTask(objective, self.temperature)
            beside = ExtraExamples(
                self._synthetic(ctx, positives=peers.near, negatives=peers.far), self.pairing == "by_index"
            )
        fitted = yield from ctx.fit(
            before, self.solver, objective=objective, extra_examples=beside, lr_horizon=LRHorizon(peers.round * steps, peers.rounds * steps),
            optimizer_state=moments_taken(own, before), keep_optimizer_state=True,
        )  # fmt: skip
        optimizer_state = moments_kept(own, fitted.optimizer_state, before, Layers.all(), ~NAMING)
        return Weighted((fitted.params - before).select_layers(ENCODER), float(ctx.size)), Own(
            fitted.params.exclude_layers(ENCODER), optimizer_state
        )

    def _synthetic(self, ctx: Context, **columns: Tensor) -> Examples:
        made: Synthetic | None = ctx.read_state(self.between.name)
        if made is None:
            raise RunError(
                f"{ctx.client} was not there when the synthetic instances were sent, and cannot be compared."
            )
        return Examples.from_columns(states=made.states, tokens=made.tokens, **columns)

    def view(self, state: ContrastState, client: ClientId) -> Params:
        return state.models[client] if client in state.models else next(iter(state.models.values()))

    def assemble(self, ctx: Context, params: Params, own: Own | None) -> Params:
        return ctx.initial_params.updated(own.params if own else None, params)
