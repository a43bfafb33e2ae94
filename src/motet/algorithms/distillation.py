"""Federated distillation: models teach one another by their opinions on public texts; no parameter ever travels.

    1  every client trains on its own texts, then says what it thinks of the public ones:     zᵏ = f(D⁰; θᵏ)
    2  the server weighs the opinions and pools them:                                          ẑ = Σ wᵏ zᵏ
    3  its own model learns from the pool, and says what it thinks now:                        z̃ = f(D⁰; θ)
    4  every client learns from z̃ (or from the pool itself), and goes on from there in the next round

AdaFD and its baselines differ in the weights, the pool and the two losses: `adafd.py`, `logit_baselines.py`. Architectures and
tokenizers may all be different: public texts, or their words, are what opinions have in common (`public.py`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet.algorithms.distillation_weights import Account, Importance, shares, told_apart
from motet.algorithms.logit_pooling import (
    SLIGHT,
    Pool,
    TopClasses,
    check_top,
    entropy,
    pooled,
    pooled_words,
    shortened,
    whole,
)
from motet.algorithms.public_data import public_of
from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Job, Work
from motet.learning.context import Context
from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged
from motet.learning.jobs import LRHorizon
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class Opinion:
    """What a client says of the public texts or their words, and of its training."""

    account: Account
    logits: Params | TopClasses


@message
@dataclass(frozen=True, eq=False)
class TaughtState:
    """The server's own model. The clients' are their memories."""

    params: Params


class DummyMessages(NamedTuple):
    """All that one client is sent in a round and all that it answers, as long as the true ones and with nothing in them."""

    down: list[Any]
    up: list[Any]


ALONE = 0.9  # a share of the weights that is worth a word
HEARD = Weighted(Params.from_scalars(heard=1.0), 1.0)


@dataclass(frozen=True)
class Teaching:
    """What a method of federated distillation does with opinions, whichever way they are read."""

    solver: Solver
    distil: Solver
    pool: Pool = Pool()
    server_loss: Objective = LogitSquaredError()
    local_loss: Objective | None = KLDivergence()  # None: clients do not learn from the server
    from_pool: bool = False  # clients learn from the pool itself, not from what the server's model made of it
    fresh_epochs: bool = False  # every epoch has a new optimiser and begins the schedule again, as AdaFD's code does
    shots: int | None = None  # so many rounds, after which nothing more is exchanged

    def learn(self, ctx: Context, own: Params | None, asks: tuple[str, ...]) -> Work[tuple[Account, Params, Params]]:
        """Train on one's own texts; opinions on the public ones. A training that fails leaves the model as it was, and
        scores that are no numbers are nobody's opinion."""
        params, loss = own or ctx.initial_params, math.nan
        try:
            params, losses = yield from self._trained(ctx, params, self.solver, purpose="fit")
            loss = least(losses, math.ceil(len(ctx.participant.split("train")) / self.solver.batch))
        except RunError:
            asks = ()
        opinions = yield from opinions_of(ctx, params)
        if not opinions.is_finite():
            opinions, loss, params = (
                Params(opinions.layout, torch.zeros_like(opinions.flat)),
                math.nan,
                own or ctx.initial_params,
            )
        f1 = (yield from _f1(ctx, params)) if "f1" in asks and ctx.size else None
        counts = class_counts(ctx) if "counts" in asks else ()
        return Account(loss, ctx.size, entropy(_said(opinions)), f1, counts), opinions, params

    def teach(self, server: Context, params: Params, pool: Params) -> Script[tuple[Params, Params]]:
        """Distil the pool into the server's model; what clients are to learn from."""
        lessons = public_of(server).lessons(pool)
        after, _ = yield from self._trained(server, params, self.distil, self.server_loss, lessons, "distil")
        if self.from_pool or self.local_loss is None:
            return after, pool
        return after, (yield from opinions_of(server, after))

    def study(self, ctx: Context, advice: Params, own: Params | None) -> Work[tuple[Weighted, Params]]:
        """Learn from the advice, from where one's own training ended; where that fails, the model stays as it was."""
        params, heard = own or ctx.initial_params, 1.0
        lessons = public_of(ctx).lessons(advice)
        try:
            params, _ = yield from self._trained(ctx, params, self.distil, self.local_loss, lessons, "study")
        except RunError:
            heard = 0.0
        return Weighted(Params.from_scalars(heard=heard), 1.0), params

    def dummy_messages(self, server: Context, opinion: Any) -> DummyMessages:
        """What travels in a round that is not over, given what a client's opinions travel as."""
        if self.local_loss is None:
            return DummyMessages([], [opinion])
        return DummyMessages([public_of(server).blank()], [opinion, HEARD])

    def over(self, rnd: Round) -> bool:
        return self.shots is not None and rnd.index >= self.shots

    def _trained(
        self, ctx: Context, params: Params, solver: Solver, loss: Objective | None = None, on: Examples | None = None,
        purpose: str = "fit",
    ) -> Generator[Job, Any, tuple[Params, Tensor]]:  # fmt: skip
        if not self.fresh_epochs or solver.steps is not None:
            fitted = yield from ctx.fit(params, solver, objective=loss, examples=on, purpose=purpose)
            return fitted.params, fitted.losses
        course = LRHorizon(0, solver.num_steps(len(ctx.participant.split("train") if on is None else on)))
        losses = []
        for epoch in range(solver.epochs):
            one, name = replace(solver, epochs=1), f"{purpose} {epoch}"
            fitted = yield from ctx.fit(params, one, objective=loss, examples=on, lr_horizon=course, purpose=name)
            params = fitted.params
            losses.append(fitted.losses)
        return params, torch.cat(losses)


@dataclass(frozen=True)
class Distillation:
    """The server reads each client's opinions, and weighs them by the clients' accounts."""

    teaching: Teaching
    importance: Importance
    top_classes: int | None = None
    name: str = "adafd"
    personal: bool = False

    def __post_init__(self) -> None:
        check_top(self.top_classes)

    @property
    def solver(self) -> Solver:
        return self.teaching.solver

    def init(self, start: InitialModels) -> TaughtState:
        self.importance.ready()
        return TaughtState(start.server_model)

    def round(self, state: TaughtState, rnd: Round) -> Script[TaughtState]:
        if self.teaching.over(rnd):
            return state
        public_of(rnd.server)  # what cannot work is said before anybody trains
        opinions: dict[ClientId, Opinion] = yield from gather(self.opine, to_all(rnd.cohort, None))
        weights = yield from weighed(self.importance, {c: o.account for c, o in opinions.items()}, rnd)
        said = [checked(client, whole(opinions[client].logits), rnd.server) for client in weights]
        pool = self._pooled(said, torch.stack(list(weights.values())))
        params, advice = yield from self.teaching.teach(rnd.server, state.params, pool)
        if self.teaching.local_loss is not None:
            heard = yield from total(self.study, to_all(rnd.cohort, advice))
            yield from said_of(heard, rnd)
        return TaughtState(params)

    def _pooled(self, opinions: list[Params], shares: Tensor) -> Params:
        if "seen" in opinions[0].tensors():
            return pooled_words(self.teaching.pool, opinions, shares)
        return Params.from_tensors(
            {"logits": pooled(self.teaching.pool, [each["logits"] for each in opinions], shares)}
        )

    @work(reveals="each")
    def opine(self, ctx: Context, _: None, own: Params | None) -> Work[tuple[Opinion, Params]]:
        account, opinions, params = yield from self.teaching.learn(ctx, own, self.importance.asks)
        return Opinion(account, shortened(opinions, self.top_classes)), params

    @work(reveals="sum")
    def study(self, ctx: Context, advice: Params, own: Params | None) -> Work[tuple[Weighted, Params]]:
        return (yield from self.teaching.study(ctx, advice, own))

    def dummy_messages(self, server: Context) -> DummyMessages:
        blank = public_of(server).blank()
        return self.teaching.dummy_messages(server, Opinion(Account(0.0, 1), shortened(blank, self.top_classes)))

    def view(self, state: TaughtState, client: ClientId) -> Params | None:
        return None if client else state.params

    def assemble(self, ctx: Context, view: Params | None, own: Params | None) -> Params:
        return view or own or ctx.initial_params


Exchanged = Literal["gather", "sum"]


def weighed(importance: Importance, accounts: Mapping[ClientId, Account], rnd: Round) -> Script[dict[ClientId, Tensor]]:
    """The share of each client in the pool; who has nothing to teach is left out, and that is said."""
    sound, left_out = told_apart(accounts)
    for client in left_out:
        why = f"its training loss is {accounts[client].loss:g}" if accounts[client].size else "it has no training texts"
        yield Note(f"round {rnd.index + 1}: {client} is left out of the pool: {why}.")
    if not sound:
        raise nothing_to_pool(rnd, len(accounts))
    weights, remark = importance.weights(sound)
    if remark.text:
        yield replace(remark, text=f"round {rnd.index + 1}: {remark.text}")
    found = dict(zip(sound, shares(weights), strict=True))
    first = max(found, key=lambda client: float(found[client].mean()))
    if len(found) > 1 and float(found[first].mean()) > ALONE:
        yield Note(
            f"round {rnd.index + 1}: {first} has {float(found[first].mean()):.2f} of the weight, and decides alone."
        )
    for client, share in found.items():
        values = {"weight": float(share.mean()), "loss": sound[client].loss, "entropy": sound[client].entropy}
        yield Note(source=client, kind="distillation", values=values)
    return found


def nothing_to_pool(rnd: Round, clients: int) -> RunError:
    return RunError(
        f"round {rnd.index + 1}: none of {clients} clients has a finite training loss, so there is nothing to pool; "
        "lower solver.lr, or set solver.clip=1.0."
    )


def said_of(heard: Weighted, rnd: Round) -> Script[None]:
    failed = round(heard.weight * (1 - float(heard.value["heard"])))
    if failed:
        yield Note(
            f"round {rnd.index + 1}: {failed} clients could not learn from the server's opinions; they stay as they were."
        )


def least(losses: Tensor, batches: int) -> float:
    """The smallest of the epochs' mean losses; NaN where there was no step."""
    if not len(losses):
        return math.nan
    return min(float(epoch.double().mean()) for epoch in torch.split(losses, max(1, batches)))


def opinions_of(ctx: Context, params: Params) -> Work[Params]:
    public = public_of(ctx)
    return public.opinions((yield from ctx.infer(params, public.examples, public.readout)))


def _said(opinions: Params) -> Tensor:
    """The scores of what was seen at all."""
    logits = opinions["logits"]
    return logits[opinions["seen"] > 0] if "seen" in opinions.tensors() else logits


def checked(who: ClientId, opinions: Params, server: Context) -> Params:
    wanted = public_of(server).blank().layout
    if opinions.layout.names != wanted.names or opinions.layout.shapes != wanted.shapes or not opinions.is_finite():
        found = ", ".join(f"{n} {list(s)}" for n, s in zip(opinions.layout.names, opinions.layout.shapes, strict=True))
        asked = ", ".join(f"{n} {list(s)}" for n, s in zip(wanted.names, wanted.shapes, strict=True))
        raise RunError(
            f"{who} has opinions {found}; the server expects finite ones, {asked} (public texts or their words, by classes); "
            "all groups must have the same corpus and labels."
        )
    if "seen" in wanted.names and not ((opinions["seen"] >= -SLIGHT) & (opinions["seen"] <= 1 + SLIGHT)).all():
        raise RunError(f"{who} says that it has seen a word less than not at all, or more than once; expected 0 to 1.")
    return opinions


def _f1(ctx: Context, params: Params) -> Work[float]:
    scores = (yield from ctx.evaluate(params, "train")).scores
    return scores.get("f1_weighted", scores[ctx.participant.task.primary_metric])


def class_counts(ctx: Context) -> tuple[int, ...]:
    """How often each class occurs in the training data: among texts or, where words are tagged, among words."""
    train, classes = ctx.participant.split("train"), public_of(ctx).classes
    labels = train.features.columns["labels"]
    own = labels.pad_rows(train.rows)[0] if isinstance(labels, Ragged) else labels[train.rows]
    return tuple(np.bincount(own[own != IGNORE_INDEX].astype(np.int64), minlength=classes).tolist())
