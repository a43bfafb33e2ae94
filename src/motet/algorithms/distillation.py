"""Federated distillation: models learn from each other's logits on public data. Parameters are never sent.

    1  each client trains on its own data and predicts the public data:             zᵏ = f(D⁰; θᵏ)
    2  the server weights and pools the logits:                                      ẑ = Σ wᵏ zᵏ
    3  the server's model learns from the pooled logits and predicts:                z̃ = f(D⁰; θ)
    4  each client learns from z̃ (or from ẑ), and continues from there in the next round

AdaFD and its baselines differ in the weights, the pooling and the two losses: see `adafd.py` and
`logit_baselines.py`. Clients may use different architectures and tokenizers, because logits refer to public texts or
words (`public_data.py`).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from motet.algorithms.distillation_weights import (
    Stats,
    TrainingStats,
    WeightingRule,
    normalize_weights,
    split_usable,
)
from motet.algorithms.logit_pooling import (
    MIN_SEEN_WEIGHT,
    Pooling,
    TopLogits,
    check_top_classes,
    mean_entropy,
    pool_logits,
    pool_word_logits,
    restore_logits,
    truncate_logits,
)
from motet.algorithms.public_data import get_public_data
from motet.core.errors import RunError
from motet.core.messages import message
from motet.core.params import Layout, Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Job, Work
from motet.learning.context import Context
from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged
from motet.learning.lr_schedule import LRHorizon
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

ExchangeMode = Literal["gather", "sum"]
DOMINANT_WEIGHT = 0.9  # a note is logged if one client has a larger share of the weight
# The purposes of the two distillations are part of their seeds. Other words would change the results of a run.
DISTILL_SERVER, DISTILL_CLIENT = "distil", "study"


@message
@dataclass(frozen=True, eq=False)
class ClientLogits:
    """A client's logits on the public data, and its training statistics."""

    stats: TrainingStats
    logits: Params | TopLogits


@message
@dataclass(frozen=True, eq=False)
class DistillationState:
    """The server's model. Each client's model is its client state."""

    params: Params


@dataclass(frozen=True)
class Distiller:
    """The training steps of federated distillation, independent of how the server reads the logits."""

    solver: Solver
    distill_solver: Solver
    pooling: Pooling = Pooling()
    server_loss: Objective = LogitSquaredError()
    client_loss: Objective | None = KLDivergence()  # None: clients do not learn from the server
    teach_pooled: bool = False  # clients learn from the pooled logits instead of the server model's logits
    restart_every_epoch: bool = False  # new optimizer and learning-rate schedule in each epoch, as in AdaFD's code
    max_rounds: int | None = None  # the number of rounds with an exchange; None: all

    def __post_init__(self) -> None:
        if self.restart_every_epoch:
            self.solver.require_new_schedule("the released code", "has a schedule for each round")
            self.solver.require_new_optimizer("the released code", "starts with a new optimizer in every epoch")

    def train_and_predict(
        self, ctx: Context, client_state: Params | None, required_stats: tuple[str, ...]
    ) -> Work[tuple[TrainingStats, Params, Params]]:
        """Train on the client's own data and predict the public data.

        If training fails or the logits are not finite, the client keeps its previous model and its loss is NaN.
        """
        before = client_state or ctx.initial_params
        params, loss = before, math.nan
        try:
            params, losses = yield from self._train(ctx, before, self.solver, purpose="fit")
            loss = smallest_epoch_loss(losses, math.ceil(len(ctx.participant.split("train")) / self.solver.batch))
        except RunError:
            required_stats = ()
        logits = yield from predict_public(ctx, params)
        if not logits.is_finite():
            logits, loss, params = logits.zeros_like(), math.nan, before
        f1 = (yield from _train_f1(ctx, params)) if "f1" in required_stats and ctx.size else None
        stats = TrainingStats(
            loss=loss,
            num_examples=ctx.size,
            entropy=mean_entropy(_seen_logits(logits)),
            f1=f1,
            class_counts=count_classes(ctx) if "class_counts" in required_stats else (),
        )
        return stats, logits, params

    def distill_server(self, server: Context, params: Params, pooled: Params) -> Script[tuple[Params, Params]]:
        """Distill the pooled logits into the server's model. Return it, and the logits that clients learn from."""
        examples = get_public_data(server).with_teacher(pooled)
        after, _ = yield from self._train(
            server, params, self.distill_solver, self.server_loss, examples, DISTILL_SERVER
        )
        if self.teach_pooled or self.client_loss is None:
            return after, pooled
        return after, (yield from predict_public(server, after))

    def distill_client(
        self, ctx: Context, teacher: Params, client_state: Params | None
    ) -> Work[tuple[Weighted, Params]]:
        """Learn from the teacher's logits. If training fails, the client keeps its model and reports it."""
        params, succeeded = client_state or ctx.initial_params, 1.0
        examples = get_public_data(ctx).with_teacher(teacher)
        try:
            params, _ = yield from self._train(
                ctx, params, self.distill_solver, self.client_loss, examples, DISTILL_CLIENT
            )
        except RunError:
            succeeded = 0.0
        return _success_report(succeeded), params

    def dummy_exchanges(self, rnd: Round, client_logits: Any) -> list[DummyExchange]:
        """Return the exchanges of a round. `client_logits` is the message in which a client sends its logits."""
        if self.is_over(rnd):
            return []
        clients, teacher = len(rnd.cohort), get_public_data(rnd.server).blank_logits()
        distill = DummyExchange(clients, payload=teacher, reply=_success_report(1.0))
        return [DummyExchange(clients, payload=None, reply=client_logits), *([distill] if self.client_loss else [])]

    def is_over(self, rnd: Round) -> bool:
        return self.max_rounds is not None and rnd.index >= self.max_rounds

    def _train(
        self,
        ctx: Context,
        params: Params,
        solver: Solver,
        loss: Objective | None = None,
        examples: Examples | None = None,
        purpose: str = "fit",
    ) -> Generator[Job, Any, tuple[Params, Tensor]]:
        if not self.restart_every_epoch or solver.steps is not None:
            result = yield from ctx.fit(params, solver, objective=loss, examples=examples, purpose=purpose)
            return result.params, result.losses
        horizon = LRHorizon(0, solver.num_steps(len(ctx.participant.split("train") if examples is None else examples)))
        one_epoch, losses = replace(solver, epochs=1), []
        for epoch in range(solver.epochs):
            result = yield from ctx.fit(
                params,
                one_epoch,
                objective=loss,
                examples=examples,
                lr_horizon=horizon,
                purpose=f"{purpose} {epoch}",
            )
            params = result.params
            losses.append(result.losses)
        return params, torch.cat(losses)


@dataclass(frozen=True)
class Distillation(Algorithm):
    """Federated distillation in which the server reads each client's logits and training statistics."""

    distiller: Distiller
    weighting: WeightingRule
    top_classes: int | None = None
    name: str = "adafd"
    personal: bool = False

    def __post_init__(self) -> None:
        check_top_classes(self.top_classes)

    def init(self, start: InitialModels) -> DistillationState:
        self.weighting.check()
        return DistillationState(start.server_model)

    def round(self, state: DistillationState, rnd: Round) -> Script[DistillationState]:
        if self.distiller.is_over(rnd):
            return state
        num_classes = get_public_data(rnd.server).num_classes  # raises before any client trains
        replies: dict[ClientId, ClientLogits] = yield from gather(self.train_and_predict, to_all(rnd.cohort, None))
        weights = yield from weigh_clients(self.weighting, {c: reply.stats for c, reply in replies.items()}, rnd)
        restored = {client: restore_logits(client, replies[client].logits, num_classes) for client in weights}
        logits = [check_logits(client, each, rnd.server) for client, each in restored.items()]
        pooled = self._pool(logits, torch.stack(list(weights.values())))
        params, teacher = yield from self.distiller.distill_server(rnd.server, state.params, pooled)
        if self.distiller.client_loss is not None:
            reports = yield from total(self.distill, to_all(rnd.cohort, teacher))
            yield from note_failures(reports, rnd)
        return DistillationState(params)

    def _pool(self, logits: list[Params], weights: Tensor) -> Params:
        if "seen" in logits[0].tensors():
            return pool_word_logits(self.distiller.pooling, logits, weights)
        pooled = pool_logits(self.distiller.pooling, [each["logits"] for each in logits], weights)
        return Params.from_tensors({"logits": pooled})

    @work(reveals="each", name="opine")
    def train_and_predict(
        self, ctx: Context, _: None, client_state: Params | None
    ) -> Work[tuple[ClientLogits, Params]]:
        required_stats = self.weighting.required_stats
        stats, logits, params = yield from self.distiller.train_and_predict(ctx, client_state, required_stats)
        return ClientLogits(stats, truncate_logits(logits, self.top_classes)), params

    @work(reveals="sum", name="study")
    def distill(self, ctx: Context, teacher: Params, client_state: Params | None) -> Work[tuple[Weighted, Params]]:
        return (yield from self.distiller.distill_client(ctx, teacher, client_state))

    def dummy_exchanges(self, state: DistillationState, rnd: Round) -> list[DummyExchange]:
        logits = truncate_logits(get_public_data(rnd.server).blank_logits(), self.top_classes)
        stats = TrainingStats(loss=0.0, num_examples=1)
        return self.distiller.dummy_exchanges(rnd, ClientLogits(stats, logits))

    def view(self, state: DistillationState, client: ClientId) -> Params | None:
        return None if client else state.params

    def assemble(self, ctx: Context, view: Params | None, client_state: Params | None) -> Params:
        return view or client_state or ctx.initial_params


def weigh_clients(rule: WeightingRule, stats: Stats, rnd: Round) -> Script[dict[ClientId, Tensor]]:
    """Return each usable client's share of the weight, and note which clients are left out."""
    usable, left_out = split_usable(stats)
    for client in left_out:
        reason = f"its training loss is {stats[client].loss:g}" if stats[client].num_examples else "no training data"
        yield Note(f"round {rnd.index + 1}: {client} is left out of the pool: {reason}.")
    if not usable:
        raise no_usable_client_error(rnd, len(stats))
    weights, note = rule.weights(usable)
    if note.text:
        yield replace(note, text=f"round {rnd.index + 1}: {note.text}")
    shares = dict(zip(usable, normalize_weights(weights), strict=True))
    mean_shares = {client: float(share.mean()) for client, share in shares.items()}
    top = max(mean_shares, key=lambda client: mean_shares[client])
    if len(shares) > 1 and mean_shares[top] > DOMINANT_WEIGHT:
        yield Note(f"round {rnd.index + 1}: {top} has {mean_shares[top]:.2f} of the weight and dominates the pool.")
    for client, share in mean_shares.items():
        values = {"weight": share, "loss": usable[client].loss, "entropy": usable[client].entropy}
        yield Note(source=client, kind="distillation", values=values)
    return shares


def no_usable_client_error(rnd: Round, num_clients: int) -> RunError:
    return RunError(
        f"round {rnd.index + 1}: none of {num_clients} clients has a finite training loss, so there are no logits to "
        "pool; lower solver.lr, or set solver.clip=1.0."
    )


def note_failures(reports: Weighted, rnd: Round) -> Script[None]:
    """Note how many clients could not learn from the server's logits."""
    failures = round(reports.weight * (1 - float(reports.value["succeeded"])))
    if failures:
        yield Note(
            f"round {rnd.index + 1}: {failures} clients could not learn from the server's logits; "
            "they keep their previous models."
        )


def _success_report(succeeded: float) -> Weighted:
    return Weighted(Params.from_scalars(succeeded=succeeded), 1.0)


def smallest_epoch_loss(losses: Tensor, batches_per_epoch: int) -> float:
    """Return the smallest mean loss of an epoch, or NaN if there were no steps."""
    if not len(losses):
        return math.nan
    return min(float(epoch.double().mean()) for epoch in torch.split(losses, max(1, batches_per_epoch)))


def predict_public(ctx: Context, params: Params) -> Work[Params]:
    """Return a model's logits on the public data."""
    public = get_public_data(ctx)
    return public.to_logits((yield from ctx.infer(params, public.examples, public.readout)))


def _seen_logits(logits: Params) -> Tensor:
    return logits["logits"][logits["seen"] > 0] if "seen" in logits.tensors() else logits["logits"]


def check_logits(source: str, logits: Params, server: Context) -> Params:
    """Return the logits, or raise an error if they are not finite or do not fit the public data."""
    expected = get_public_data(server).blank_logits().layout
    if logits.layout.names != expected.names or logits.layout.shapes != expected.shapes or not logits.is_finite():
        raise RunError(
            f"{source} sent logits with {_describe(logits.layout)}; expected finite numbers with {_describe(expected)} "
            "(public texts or words x classes). All groups must have the same corpus and labels."
        )
    if "seen" in expected.names:
        seen = logits["seen"]
        if not ((seen >= -MIN_SEEN_WEIGHT) & (seen <= 1 + MIN_SEEN_WEIGHT)).all():
            seen_range = f"from {float(seen.min()):g} to {float(seen.max()):g}"
            raise RunError(f"{source} sent values of `seen` {seen_range}; expected numbers from 0 to 1.")
    return logits


def _describe(layout: Layout) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in zip(layout.names, layout.shapes, strict=True))


def _train_f1(ctx: Context, params: Params) -> Work[float]:
    scores = (yield from ctx.evaluate(params, "train")).scores
    return scores.get("f1_weighted", scores[ctx.participant.task.primary_metric])


def count_classes(ctx: Context) -> tuple[int, ...]:
    """Count the training examples (in tagging: words) of each class."""
    train, num_classes = ctx.participant.split("train"), get_public_data(ctx).num_classes
    column = train.features.columns["labels"]
    labels = column.pad_rows(train.rows)[0] if isinstance(column, Ragged) else column[train.rows]
    return tuple(np.bincount(labels[labels != IGNORE_INDEX].astype(np.int64), minlength=num_classes).tolist())
