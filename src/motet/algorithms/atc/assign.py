"""ATC's first stage: all clients learn from their texts alone, and those that learn alike share what they learn (section 3.2).

Each round the server assigns one of two lessons to all: name masked words, which trains the encoder and the head that names
them, or rewrite garbled texts, which trains encoder and decoder. Only what the lesson trains is sent, either way.

    wₙ ← wₙ + Σ_{i ∈ Cₙ} |Dᵢ|/|D_Cₙ| · Δwᵢ,   Cₙ: n's cluster by the cosine of the updates, anew each round        (eq. 1)

The authors' code sends everything, zeros included; clusters and models come out the same. Optimiser and schedule span the whole
stage. Where a lesson does not train a part, neither momentum nor weight decay moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from motet.algorithms.atc.backbone_state import BACKBONE, Own, backbones, moments_kept, moments_taken
from motet.algorithms.update_similarity import clustered, mean_of
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.denoising import SpecialTokens, corrupt_texts, mask_tokens
from motet.learning.data.features import Examples
from motet.learning.jobs import LRHorizon
from motet.learning.objectives.atc_objectives import DenoisingReconstruction, MaskedLanguageModeling
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

Lesson = Literal["mlm", "dr"]
TRAINS: dict[Lesson, Layers] = {
    "mlm": Layers.parse("encoder", "encoder head"),
    "dr": Layers.parse("encoder", "decoder"),
}
_OBJECTIVES: dict[Lesson, Objective] = {"mlm": MaskedLanguageModeling(), "dr": DenoisingReconstruction()}
_MAKERS: dict[Lesson, Callable[[Examples, SpecialTokens, np.random.Generator], Examples]] = {
    "mlm": mask_tokens,
    "dr": corrupt_texts,
}


@message
@dataclass(frozen=True, eq=False)
class Assigned:
    params: Params
    lesson: Lesson
    round: int
    rounds: int


@message
@dataclass(frozen=True, eq=False)
class AssignState:
    models: dict[ClientId, Params]


@dataclass(frozen=True)
class Assign:
    solver: Solver
    lessons: tuple[Lesson, ...] = ("mlm", "dr")
    clusters: int = 5
    name: str = "assign"
    personal: bool = True

    def init(self, start: InitialModels) -> AssignState:
        return AssignState(backbones(start, BACKBONE))

    def round(self, state: AssignState, rnd: Round) -> Script[AssignState]:
        lesson = self._drawn(rnd)
        trains = TRAINS[lesson]
        asks = {c: Assigned(state.models[c].select_layers(trains), lesson, rnd.index, rnd.rounds) for c in rnd.cohort}
        replies = yield from gather(self.learn, asks)
        learnt = {c: reply for c, reply in replies.items() if reply.weight > 0}
        group = clustered({c: reply.value for c, reply in learnt.items()}, self.clusters)
        step = {g: mean_of(learnt, [c for c in learnt if group[c] == g]) for g in sorted(set(group.values()))}
        yield Note(values={"lesson": lesson, "clusters": group})
        moved = {c: state.models[c].updated(asks[c].params + step[group[c]]) for c in learnt}
        return AssignState({**state.models, **{c: rnd.offload(model) for c, model in moved.items()}})

    def _drawn(self, rnd: Round) -> Lesson:
        """The first round's is the first of the lessons, afterwards any of them."""
        place = 0 if rnd.index == 0 else int(rnd.seed.derive("lesson").numpy().integers(len(self.lessons)))
        return self.lessons[place]

    @work(reveals="each")
    def learn(self, ctx: Context, ask: Assigned, own: Own | None) -> Work[tuple[Weighted, Own | None]]:
        texts, trains = ctx.participant.split("train"), TRAINS[ask.lesson]
        before = ctx.initial_params.updated(ask.params)
        if not len(texts):
            return Weighted(ask.params.zeros_like(), 0.0), own
        steps, rng = self.solver.num_steps(len(texts)), ctx.seed.derive("lesson").numpy()
        rows = np.concatenate(self.solver.draw_batches(len(texts), rng))
        drawn = Examples(texts.features, texts.rows[rows])
        exercise = _MAKERS[ask.lesson](drawn, SpecialTokens.from_tokenizer(ctx.model.tokenizer), rng)
        course = LRHorizon(ask.round * steps, ask.rounds * steps)
        fitted = yield from ctx.fit(
            before, replace(self.solver, steps=steps), objective=_OBJECTIVES[ask.lesson], examples=exercise, lr_horizon=course,
            optimizer_state=moments_taken(own, before), keep_optimizer_state=True,
        )  # fmt: skip
        update = (fitted.params - before).select_layers(trains)
        return Weighted(update, float(ctx.size)), Own(
            None, moments_kept(own, fitted.optimizer_state, before, trains, BACKBONE)
        )

    def view(self, state: AssignState, client: ClientId) -> Params:
        return state.models[client] if client in state.models else next(iter(state.models.values()))

    def assemble(self, ctx: Context, params: Params, own: Own | None) -> Params:
        return ctx.initial_params.updated(params)
