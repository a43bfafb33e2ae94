"""Evaluation as a federated program: each client evaluates the model it would deploy on local data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from motet.core.errors import PrivacyError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm
from motet.core.rebased import ModelParams
from motet.core.script import ClientId, Program, Script, gather, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.confusion_matrix import Confusion
from motet.learning.context import Context

_SHARE = " share"  # of the clients on which a metric is defined, for metrics that need rows of some kind


@message
@dataclass(frozen=True, eq=False)
class EvaluationRequest:
    """`view` is what the server would send to the client to deploy."""

    view: Any
    split: str


@message
@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """A client's metrics, one row per example, and its confusions if the task has labels.

    All are empty if the client cannot evaluate this split.
    """

    scores: dict[str, float]
    example_scores: Tensor
    confusion: Confusion | None = None


OnModel = Callable[[Context, ModelParams, Mapping[str, float]], None]
DEPLOYED_SPLITS = ("test",)  # clients with their own data never evaluate a model on their training texts


@dataclass(frozen=True)
class Evaluator(Program):
    """Collects every client's metrics or, if clients reveal only sums, their mean.

    With `splits`, a client refuses to evaluate a model on any other split. `on_model` is called at the client with each
    model that it would deploy, and its scores.
    """

    algorithm: Algorithm
    splits: tuple[str, ...] | None = None
    name: str = "evaluate"
    on_model: OnModel | None = None

    def evaluate_each(
        self, state: Any, clients: Sequence[ClientId], split: str
    ) -> Script[dict[ClientId, dict[str, float]]]:
        requests = make_requests(self.algorithm, state, clients, split)
        reports: dict[ClientId, dict[str, float]] = yield from gather(self.report_metrics, requests)
        return {client: scores for client, scores in reports.items() if scores}

    def evaluate_mean(self, state: Any, clients: Sequence[ClientId], split: str) -> Script[dict[str, float]]:
        mean = yield from total(self.sum_metrics, make_requests(self.algorithm, state, clients, split))
        means = {name: float(value) for name, value in mean.value.tensors().items()}
        shares = {name: means.pop(f"{name}{_SHARE}") for name in list(means) if f"{name}{_SHARE}" in means}
        defined = {name: value for name, value in means.items() if shares.get(name, 1.0)}
        return {name: value / shares.get(name, 1.0) for name, value in defined.items()}

    @work(reveals="each")
    def report_metrics(
        self, ctx: Context, request: EvaluationRequest, client_state: None
    ) -> Work[tuple[dict[str, float], None]]:
        scores = yield from self.compute_scores(ctx, request)
        return scores, None

    @work(reveals="sum")
    def sum_metrics(self, ctx: Context, request: EvaluationRequest, client_state: None) -> Work[tuple[Weighted, None]]:
        scores = yield from self.compute_scores(ctx, request)
        task = ctx.participant.task
        metrics = {name: scores.get(name, 0.0) for name in task.metric_names}
        shares = {f"{name}{_SHARE}": float(name in scores) for name in task.partial_metrics}
        return Weighted(Params.from_scalars(**metrics, **shares), float(bool(scores))), None

    def compute_scores(self, ctx: Context, request: EvaluationRequest) -> Work[dict[str, float]]:
        if self.splits is not None and request.split not in self.splits:
            raise PrivacyError(
                f"the server asked for an evaluation on the split '{request.split}'; this client evaluates models only on "
                f"{' and '.join(self.splits)}."
            )
        params = deployed_params(self.algorithm, ctx, request)
        scores = {} if params is None else (yield from ctx.evaluate(params, request.split)).scores
        if self.on_model is not None:
            model = self.algorithm.assemble(ctx, request.view, ctx.read_state(self.algorithm.name))
            if model is not None:
                self.on_model(ctx, model, scores)  # also without examples to evaluate it on
        return scores


@dataclass(frozen=True)
class ModelDelivery(Program):
    """Sends clients the model that they would deploy, and gets nothing back. For runs in which metrics stay private."""

    algorithm: Algorithm
    name: str = "deliver"
    on_model: OnModel | None = None

    def deliver(self, state: Any, clients: Sequence[ClientId]) -> Script[None]:
        yield from gather(self.receive, make_requests(self.algorithm, state, clients, DEPLOYED_SPLITS[0]))

    @work(reveals="each")
    def receive(self, ctx: Context, request: EvaluationRequest, client_state: None) -> Work[tuple[None, None]]:
        """Keep the model, with its scores on the client's own test split. The reply is empty."""
        if self.on_model is not None:
            evaluator = Evaluator(self.algorithm, splits=DEPLOYED_SPLITS, on_model=self.on_model)
            yield from evaluator.compute_scores(ctx, request)
        return None, None


@dataclass(frozen=True)
class ExampleEvaluator(Program):
    """Collects metrics and one row per example, in simulations. Clients with their own data do not offer this program."""

    algorithm: Algorithm
    name: str = "evaluate_examples"

    def evaluate_examples(
        self, state: Any, clients: Sequence[ClientId], split: str
    ) -> Script[dict[ClientId, EvaluationReport]]:
        return (yield from gather(self.report_examples, make_requests(self.algorithm, state, clients, split)))

    @work(reveals="each")
    def report_examples(
        self, ctx: Context, request: EvaluationRequest, client_state: None
    ) -> Work[tuple[EvaluationReport, None]]:
        params = deployed_params(self.algorithm, ctx, request)
        if params is None:
            return EvaluationReport({}, torch.zeros(0, 1)), None
        result = yield from ctx.evaluate(params, request.split, per_example=True)
        rows = torch.zeros(0, 1) if result.example_scores is None else torch.from_numpy(result.example_scores)
        return EvaluationReport(result.scores, rows, result.confusion), None


def make_requests(
    algorithm: Algorithm, state: Any, clients: Sequence[ClientId], split: str
) -> dict[ClientId, EvaluationRequest]:
    return {client: EvaluationRequest(algorithm.view(state, client), split) for client in clients}


def deployed_params(algorithm: Algorithm, ctx: Context, request: EvaluationRequest) -> ModelParams | None:
    """Return the model the client would deploy.

    None if the client has no examples in this split, or if it cannot run the model.
    """
    if not len(ctx.participant.split(request.split)):
        return None
    return algorithm.assemble(ctx, request.view, ctx.read_state(algorithm.name))
