"""Evaluate the models of a run: the global model, and each client's own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from motet.core.script import ClientId
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.deployed_model import assemble_model
from motet.experiment.loop.per_client_eval import evaluate_per_client
from motet.experiment.loop.round_engine import RoundEngine
from motet.experiment.loop.scores import group_means, mean_over_groups
from motet.learning.context import EvaluationResult
from motet.learning.evaluation import EvaluationReport, Evaluator


@dataclass(frozen=True, eq=False)
class SplitResult:
    """The metrics of a run on one split. With personal models, `groups` has the means of each group."""

    scores: dict[str, float] = field(default_factory=dict)
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    example_scores: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ClientResults:
    """The metrics of each client's model on its test set. Under a secure sum only their mean is known."""

    scores: dict[ClientId, dict[str, float]] = field(default_factory=dict)
    example_scores: dict[ClientId, np.ndarray] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)


class RunEvaluator:
    """Evaluates a run after its last complete round."""

    def __init__(self, plan: RunPlan, engine: RoundEngine) -> None:
        self.plan, self.engine = plan, engine
        self.program = Evaluator(plan.algorithm)
        federation, limit = plan.federation, plan.evaluation.clients
        self.has_dev_set = isinstance(federation, Federation) and federation.has_dev_set
        count = len(federation.clients) if limit is None else min(limit, len(federation.clients))
        self.clients = [federation.clients[i] for i in range(count)]

    def evaluate_split(self, split: str, per_example: bool = False) -> SplitResult:
        """Evaluate the global model on the split "global" or "dev".

        With personal models, evaluate those instead, and return the mean over groups of the means in each group.
        """
        if not self.plan.has_personal_models:
            server = self.plan.federation.server_context(self.engine.progress.rounds)
            params = assemble_model(self.plan, self.engine.progress, self.engine.client_states)
            result: EvaluationResult = self.engine.run_evaluation(
                server.evaluate(params, split, per_example=per_example)
            )
            return SplitResult(scores=result.scores, example_scores=result.example_scores)
        if self.plan.components.secure:
            return SplitResult(scores=self.evaluate_mean(split))
        groups = group_means(self.plan.federation, self._evaluate_each(split))
        return SplitResult(scores=mean_over_groups(self.plan.federation.task, groups), groups=groups)

    def evaluate_domains(self, federation: Federation, per_example: bool) -> dict[str, EvaluationResult]:
        """Evaluate the global model on each client's test set, and on all of them under ""."""
        progress = self.engine.progress
        params = assemble_model(self.plan, progress, self.engine.client_states)
        return self.engine.run_evaluation(evaluate_per_client(federation, params, progress.rounds, per_example))

    def evaluate_clients(self, per_example: bool = False) -> ClientResults:
        """Evaluate each client's model on its test set. Under a secure sum, return only the mean over clients."""
        if self.plan.components.secure:
            return ClientResults(mean=self.evaluate_mean("test"))
        if not per_example:
            return ClientResults(scores=self._evaluate_each("test"))
        script = self.program.evaluate_examples(self.engine.progress.state, self.clients, "test")
        reports: dict[ClientId, EvaluationReport] = self.engine.run_evaluation(script)
        return ClientResults(
            scores={client: report.scores for client, report in reports.items() if report.scores},
            example_scores={c: r.example_scores.numpy() for c, r in reports.items() if len(r.example_scores)},
        )

    def evaluate_mean(self, split: str) -> dict[str, float]:
        """Return the mean over clients of the metrics of their own models."""
        return self.engine.run_evaluation(self.program.evaluate_mean(self.engine.progress.state, self.clients, split))

    def _evaluate_each(self, split: str) -> dict[ClientId, dict[str, float]]:
        return self.engine.run_evaluation(self.program.evaluate_each(self.engine.progress.state, self.clients, split))
