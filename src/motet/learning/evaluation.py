"""Evaluation is a program like any other: what each client would deploy, judged where the data are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm
from motet.core.script import ClientId, Script, gather, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context


@message
@dataclass(frozen=True, eq=False)
class EvaluationRequest:
    """Judge what this view makes of your model, on that split."""

    view: Any
    split: str


@message
@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """A client's metrics and a row for each of its items; both empty if it has nothing to say of this split."""

    scores: dict[str, float]
    example_scores: Tensor


@dataclass(frozen=True)
class Evaluator:
    """Each client's own metrics on its own data, or, where clients reveal only sums, the mean over clients."""

    algorithm: Algorithm
    name: str = "evaluate"

    def evaluate_each(
        self, state: Any, clients: Sequence[ClientId], split: str
    ) -> Script[dict[ClientId, dict[str, float]]]:
        asks = {c: EvaluationRequest(self.algorithm.view(state, c), split) for c in clients}
        reports: dict[ClientId, dict[str, float]] = yield from gather(self.report_metrics, asks)
        return {client: scores for client, scores in reports.items() if scores}

    def evaluate_examples(
        self, state: Any, clients: Sequence[ClientId], split: str
    ) -> Script[dict[ClientId, EvaluationReport]]:
        """Metrics and a row for every item: more than metrics reveal, for whoever compares methods in simulation."""
        asks = {c: EvaluationRequest(self.algorithm.view(state, c), split) for c in clients}
        return (yield from gather(self.report_examples, asks))

    def evaluate_mean(self, state: Any, clients: Sequence[ClientId], split: str) -> Script[dict[str, float]]:
        asks = {c: EvaluationRequest(self.algorithm.view(state, c), split) for c in clients}
        scores = yield from total(self.sum_metrics, asks)
        return {name: float(value) for name, value in scores.value.tensors().items()}

    @work(reveals="each")
    def report_metrics(
        self, ctx: Context, ask: EvaluationRequest, client_state: None
    ) -> Work[tuple[dict[str, float], None]]:
        scores = yield from self._scores(ctx, ask)
        return scores, None

    @work(reveals="each")
    def report_examples(
        self, ctx: Context, ask: EvaluationRequest, client_state: None
    ) -> Work[tuple[EvaluationReport, None]]:
        params = self._to_judge(ctx, ask)
        if params is None:
            return EvaluationReport({}, torch.zeros(0, 1)), None
        found = yield from ctx.evaluate(params, ask.split, per_example=True)
        return EvaluationReport(
            found.scores, torch.zeros(0, 1) if found.example_scores is None else torch.from_numpy(found.example_scores)
        ), None

    @work(reveals="sum")
    def sum_metrics(self, ctx: Context, ask: EvaluationRequest, client_state: None) -> Work[tuple[Weighted, None]]:
        scores = yield from self._scores(ctx, ask)
        counts = Params.from_scalars(**{name: scores.get(name, 0.0) for name in ctx.participant.task.metric_names})
        return Weighted(counts, float(bool(scores))), None

    def _scores(self, ctx: Context, ask: EvaluationRequest) -> Work[dict[str, float]]:
        params = self._to_judge(ctx, ask)
        return {} if params is None else (yield from ctx.evaluate(params, ask.split)).scores

    def _to_judge(self, ctx: Context, ask: EvaluationRequest) -> Params | None:
        """What the client would deploy; None if it has no examples in this split, or cannot run what it is given."""
        if not len(ctx.participant.split(ask.split)):
            return None
        return self.algorithm.assemble(ctx, ask.view, ctx.read_state(self.algorithm.name))
