"""Federated distillation of which the server reads nothing but sums, so that masks can hide what any client thinks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.algorithms.distillation import DummyMessages, TaughtState, Teaching, checked, nothing_to_pool, said_of
from motet.algorithms.distillation_weights import LocalImportance
from motet.algorithms.logit_pooling import of_the_seeing
from motet.algorithms.public_data import public_of
from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Note, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.solver import Solver

MOST = 2.0**23  # the largest weight that a client tells: half of what a sum of whole numbers holds of one
WHOLE = 1000.0  # what all opinions count for together, where each client knows its share


@message
@dataclass(frozen=True, eq=False)
class Learnt:
    """What a client keeps between telling how much its opinions weigh, in which round, and giving them."""

    params: Params
    opinions: Params
    weight: float
    round: int


@dataclass(frozen=True)
class SummedDistillation:
    """Each client weighs its opinions itself, by its own account, and the server reads nothing but sums.

    Weights that may be of any size (RNWC, ENWC) come first: clients tell them, the server their sum, and everybody's share of
    it is what its opinions count for. Otherwise opinions that count for e^−20 would be lost in a sum of whole numbers.
    """

    teaching: Teaching
    importance: LocalImportance
    name: str = "adafd"
    personal: bool = False

    @property
    def solver(self) -> Solver:
        return self.teaching.solver

    @property
    def sends_weights_first(self) -> bool:
        return self.importance.largest is not None

    def init(self, start: InitialModels) -> TaughtState:
        return TaughtState(start.server_model)

    def round(self, state: TaughtState, rnd: Round) -> Script[TaughtState]:
        if self.teaching.over(rnd):
            return state
        public_of(rnd.server)  # what cannot work is said before anybody trains
        votes = yield from total(self.opine, to_all(rnd.cohort, None))
        if self.sends_weights_first:
            told = yield from _told(votes, rnd)
            votes = yield from total(self.vote, to_all(rnd.cohort, told))
        mean = checked("the sum", votes.value, rnd.server)
        params, advice = yield from self.teaching.teach(rnd.server, state.params, self._pooled(mean))
        if self.teaching.local_loss is not None:
            heard = yield from total(self.study, to_all(rnd.cohort, advice))
            yield from said_of(heard, rnd)
        return TaughtState(params)

    @work(reveals="sum")
    def opine(self, ctx: Context, _: None, own: Params | Learnt | None) -> Work[tuple[Weighted, Params | Learnt]]:
        """Train, and give one's opinions or, where weights come first, tell how much they are to weigh."""
        account, opinions, params = yield from self.teaching.learn(ctx, _model(own), ())
        weight = (
            math.exp(self.importance.log_weight(account) - (self.importance.largest or 0.0)) if account.sound else 0.0
        )
        if not self.sends_weights_first:
            return self._weighted(opinions, weight), params
        told = Params.from_scalars(weight=MOST * weight, sound=float(account.sound))
        return Weighted(told, 1.0), Learnt(params, opinions, MOST * weight, ctx.round)

    @work(reveals="sum")
    def vote(self, ctx: Context, told: float, own: Params | Learnt | None) -> tuple[Weighted, Params]:
        """One's opinions, by one's share of the weights of all: a plain number, of which clients that sum securely make sure
        that everybody was told the same."""
        if not (isinstance(told, float) and 0 < told < math.inf):
            raise RunError(f"the sum of all weights cannot be {told}; expected a number above 0.")
        if not isinstance(own, Learnt) or own.round != ctx.round:  # it was not there when weights were told
            return self._weighted(public_of(ctx).blank(), 0.0), _model(own) or ctx.initial_params
        return self._weighted(own.opinions, WHOLE * min(1.0, own.weight / told)), own.params

    def _weighted(self, opinions: Params, weight: float) -> Weighted:
        vote = {**opinions.tensors(), "logits": self.teaching.pool.before(opinions["logits"])}
        if "seen" in vote:
            vote["logits"] = vote["logits"] * vote["seen"].unsqueeze(1)
        return Weighted(Params.from_tensors(vote), weight)

    def _pooled(self, mean: Params) -> Params:
        if "seen" in mean.tensors():
            return of_the_seeing(self.teaching.pool, mean["logits"], mean["seen"])
        return Params.from_tensors({"logits": self.teaching.pool.after(mean["logits"])})

    @work(reveals="sum")
    def study(self, ctx: Context, advice: Params, own: Params | Learnt | None) -> Work[tuple[Weighted, Params]]:
        return (yield from self.teaching.study(ctx, advice, _model(own)))

    def dummy_messages(self, server: Context) -> DummyMessages:
        rest = self.teaching.dummy_messages(server, Weighted(public_of(server).blank(), 1.0))
        if not self.sends_weights_first:
            return rest
        return DummyMessages([0.0, *rest.down], [Weighted(Params.from_scalars(weight=0.0, sound=1.0), 1.0), *rest.up])

    def view(self, state: TaughtState, client: ClientId) -> Params | None:
        return None if client else state.params

    def assemble(self, ctx: Context, view: Params | None, own: Params | Learnt | None) -> Params:
        return view or _model(own) or ctx.initial_params


def _told(mean: Weighted, rnd: Round) -> Script[float]:
    """The sum of the clients' weights; how many have none is said."""
    there = round(mean.weight)
    weight, sound = float(mean.value["weight"]) * mean.weight, round(float(mean.value["sound"]) * mean.weight)
    if sound < 1:
        raise nothing_to_pool(rnd, there)
    if sound < there:
        yield Note(
            f"round {rnd.index + 1}: {there - sound} of {there} clients are left out of the pool: no training texts, or a loss "
            "that is not finite."
        )
    if not weight > 0:
        raise RunError(
            f"round {rnd.index + 1}: the weights of all {sound} clients are too small to be summed, since their losses are "
            "large for algorithm.beta; lower it, or use exchange=gather."
        )
    return weight


def _model(own: Params | Learnt | None) -> Params | None:
    """A client that was lost between its two replies has not put its opinions away."""
    return own.params if isinstance(own, Learnt) else own
