"""Evaluate the models of a run: the global model, and each client's own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from motet.core.errors import RunError
from motet.core.script import ClientId, Note
from motet.experiment.build.federation import LOCAL_DEV, Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.client_sampling import evenly_spaced
from motet.experiment.loop.deployed_model import assemble_model
from motet.experiment.loop.per_client_eval import evaluate_per_client
from motet.experiment.loop.round_engine import RoundEngine
from motet.experiment.loop.scores import group_means, mean_over_groups
from motet.learning.confusion_matrix import Confusion
from motet.learning.context import EvaluationResult
from motet.learning.evaluation import EvaluationReport, Evaluator, ExampleEvaluator, ModelDelivery


@dataclass(frozen=True, eq=False)
class SplitResult:
    """The metrics of a run on one split. With personal models, `groups` has the means of each group."""

    scores: dict[str, float] = field(default_factory=dict)
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    example_scores: np.ndarray | None = None
    confusion: Confusion | None = None


@dataclass(frozen=True, eq=False)
class ClientResults:
    """The metrics of each client's model on its test set. Under a secure sum only their mean is known."""

    scores: dict[ClientId, dict[str, float]] = field(default_factory=dict)
    example_scores: dict[ClientId, np.ndarray] = field(default_factory=dict)
    confusions: dict[ClientId, Confusion] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)


class RunEvaluator:
    """Evaluates a run after its last complete round.

    Clients that keep their own data evaluate a model once a round, on their test sets alone. They may also refuse, and
    the run then continues without their metrics.
    """

    def __init__(self, plan: RunPlan, engine: RoundEngine) -> None:
        self.plan, self.engine = plan, engine
        self.program = Evaluator(plan.algorithm)
        self.clients = evenly_spaced(plan.federation.clients, plan.evaluation.clients)
        self._last_results: dict[int, ClientResults] = {}  # by round, of clients that keep their data

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
            return SplitResult(result.scores, example_scores=result.example_scores, confusion=result.confusion)
        results = self._evaluate_clients(split)
        if results.mean:
            return SplitResult(scores=results.mean)
        groups = group_means(self.plan.federation, results.scores)
        return SplitResult(scores=mean_over_groups(self.plan.federation.task, groups), groups=groups)

    def evaluate_domains(self, federation: Federation, per_example: bool) -> dict[str, EvaluationResult]:
        """Evaluate the global model on each client's test set, and on all of them under ""."""
        progress = self.engine.progress
        params = assemble_model(self.plan, progress, self.engine.client_states)
        return self.engine.run_evaluation(evaluate_per_client(federation, params, progress.rounds, per_example))

    def evaluate_clients(self, per_example: bool = False) -> ClientResults:
        """Evaluate each client's model on its test set. Under a secure sum, return only the mean over clients."""
        if not per_example or self.plan.components.secure or self.plan.clients_keep_data:
            return self._evaluate_clients("test")
        script = ExampleEvaluator(self.plan.algorithm).evaluate_examples(
            self.engine.progress.state, self.clients, "test"
        )
        reports: dict[ClientId, EvaluationReport] = self.engine.run_evaluation(script)
        return ClientResults(
            scores={client: report.scores for client, report in reports.items() if report.scores},
            example_scores={c: r.example_scores.numpy() for c, r in reports.items() if len(r.example_scores)},
            confusions={c: r.confusion for c, r in reports.items() if r.confusion is not None},
        )

    def evaluate_local_dev(self) -> ClientResults:
        """Evaluate each client's model on the rows of the development set that were held out from that client."""
        return self._evaluate_clients(LOCAL_DEV)

    def _evaluate_clients(self, split: str) -> ClientResults:
        """Collect the metrics of each client's model or, under a secure sum, their mean."""
        if not self.plan.clients_keep_data:
            return self._request_metrics(split)
        round = self.engine.progress.rounds
        if round not in self._last_results:
            self._last_results = {round: self._request_metrics_from_owners()}
        return self._last_results[round]

    def _request_metrics_from_owners(self) -> ClientResults:
        """Collect metrics from clients that keep their data. Under noise they send none, and they may refuse to."""
        try:
            if self.plan.components.privacy is None:
                return self._request_metrics("test")
            delivery = ModelDelivery(self.plan.algorithm)
            self.engine.run_evaluation(delivery.deliver(self.engine.progress.state, self.clients))
            return ClientResults()
        except RunError as error:
            self.engine.hooks.on_note(Note(f"there are no metrics of the clients' own test sets: {error}"))
            return ClientResults()

    def _request_metrics(self, split: str) -> ClientResults:
        state = self.engine.progress.state
        if self.plan.components.secure:
            return ClientResults(
                mean=self.engine.run_evaluation(self.program.evaluate_mean(state, self.clients, split))
            )
        return ClientResults(scores=self.engine.run_evaluation(self.program.evaluate_each(state, self.clients, split)))
