"""Evaluate a run when it is due, on the splits that its recipe asks for, and log the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet.experiment.build.federation import Federation
from motet.experiment.loop.example_scores import BEST_DEV_SCORES, GLOBAL_MODEL_SCORES, write_example_scores
from motet.experiment.loop.metrics_log import INITIAL_SPLIT
from motet.experiment.loop.run_evaluator import ClientResults, RunEvaluator, SplitResult
from motet.experiment.loop.run_storage import RunStorage
from motet.experiment.loop.scores import evaluations_since_best, find_best_round, mean_metrics, scores_by_round
from motet.learning.confusion_matrix import Confusion
from motet.report.profiler import span


class EvaluationLog:
    """Evaluates the last complete round of a run, and writes the scores to its metrics."""

    def __init__(self, evaluator: RunEvaluator, storage: RunStorage) -> None:
        self.evaluator, self.storage = evaluator, storage
        self.plan, self.engine = evaluator.plan, evaluator.engine
        self.last_result = SplitResult()  # of the model that is kept, on the global test set

    @property
    def is_due(self) -> bool:
        rounds = self.engine.progress.rounds
        return rounds > 0 and (rounds % self.plan.evaluation.every == 0 or self.engine.is_finished)

    @property
    def is_done(self) -> bool:
        """True if the log has the scores of the last complete round."""
        split = "global" if self.plan.evaluation.test else "dev"
        return self.storage.metrics.has_scores(self.engine.progress.rounds, split)

    @property
    def stops_early(self) -> bool:
        """True if the scores on the development set have not improved for `evaluation.patience` evaluations."""
        patience, metric = self.plan.evaluation.patience, self.plan.best_round_metric
        dev_scores = scores_by_round(self.storage.metrics.rows, "dev") if patience else {}
        return patience is not None and evaluations_since_best(dev_scores, metric) >= patience

    @property
    def _is_last(self) -> bool:
        """True if no round follows."""
        return self.engine.is_finished or self.stops_early

    @property
    def _is_best_dev_round(self) -> bool:
        """True if this round is the best so far on the development set."""
        rounds = self.engine.progress.rounds
        scores = scores_by_round(self.storage.metrics.rows, "dev") if self.plan.has_dev_set else {}
        return rounds in scores and find_best_round(scores, self.plan.best_round_metric) == rounds

    @property
    def _includes_clients(self) -> bool:
        """True if every evaluation includes the clients' own rows."""
        return self.plan.evaluation.local or self.plan.has_personal_models

    def evaluate_initial_model(self) -> dict[str, float]:
        """Evaluate and log the model before the first round, if the recipe asks for it."""
        if not (self.plan.evaluation.initial and self.plan.evaluation.test):
            return {}
        with span("evaluate the initial model", "evaluation"):
            scores = self.evaluator.evaluate_split("global").scores
        self._log("server", INITIAL_SPLIT, scores)
        return scores

    def evaluate_round(self) -> dict[str, float]:
        """Evaluate the last complete round if it is due. Return its scores, and the privacy spent so far."""
        scores: dict[str, float] = {}
        if self.is_due and self.plan.has_dev_set:
            scores = self._evaluate_dev_set()
        if self.is_due and self.plan.evaluation.test:
            scores = self._evaluate_test_sets()
        if self.engine.accountant:
            privacy = {"epsilon": self.engine.accountant.epsilon()}
            self._log("server", "privacy", privacy)
            scores = {**scores, **privacy}
        return scores

    def evaluate_clients(self) -> ClientResults:
        """Evaluate each client's own model at the end of a run."""
        saves_examples = self.plan.evaluation.save_example_scores or self.plan.has_personal_models
        with span("evaluate the clients' models", "evaluation"):
            clients = self.evaluator.evaluate_clients(per_example=saves_examples)
        self._log("clients", "test", _mean_over_clients(clients))
        for client, scores in clients.scores.items():
            self._log(client, "test", scores)
        return clients

    def evaluate_split(self, split: str) -> SplitResult:
        """Evaluate a split, and log the metrics of groups and domains unless the log has them already."""
        is_logged = self.is_done
        per_example = split == "global" and (self._is_last or self._is_best_dev_round)
        result = self.evaluator.evaluate_split(split, per_example)
        best = self.storage.best
        if split == "global" and (best is None or best.rounds == self.engine.progress.rounds):
            self.last_result = result
        if is_logged:
            return result
        for name, scores in result.groups.items() if len(result.groups) > 1 else ():
            self._log(name, split, scores)
        if split == "global" and self.plan.evaluation.by_client and not self.plan.has_personal_models:
            self._evaluate_domains()
        return result

    def collect_confusions(self, clients: ClientResults) -> dict[str, Confusion]:
        """Return the confusions of the global model under "" or, without one, those of the clients of each group."""
        if self.last_result.confusion is not None:
            return {"": self.last_result.confusion}
        by_group: dict[str, Confusion] = {}
        for client, confusion in clients.confusions.items():
            name = self.plan.federation.group_for(client).name
            by_group[name] = by_group[name] + confusion if name in by_group else confusion
        return by_group

    def _evaluate_dev_set(self) -> dict[str, float]:
        """Evaluate and log the development set, and return the scores. Keep the model if it is the best so far."""
        scores = self.evaluate_split("dev").scores
        self._log("server", "dev", scores)
        if self._includes_clients:
            self._log("clients", "dev", _mean_over_clients(self.evaluator.evaluate_local_dev()))
        if self.plan.evaluation.keep == "best" and self._is_best_dev_round:
            self.storage.best = self.engine.progress
        return scores

    def _evaluate_test_sets(self) -> dict[str, float]:
        """Evaluate and log the test sets. Return the scores of the global one or, with personal models, the clients'."""
        is_last = self._is_last
        scores = self.evaluate_split("global").scores
        examples = self.last_result.example_scores
        if scores and self._is_best_dev_round and self.storage.folder and examples is not None:
            write_example_scores(self.storage.folder, {"": examples}, BEST_DEV_SCORES)
        self._log("server", "global", scores)
        attack = self.plan.attack
        if attack is not None and attack.data_change == "trigger":
            self._log("server", "backdoor", self.evaluate_split("backdoor").scores)
        if self._includes_clients:
            local_scores = _mean_over_clients(self.evaluator.evaluate_clients())
            if not is_last:  # `evaluate_clients` logs those of the last round
                self._log("clients", "test", local_scores)
            if self.plan.has_personal_models:
                scores = local_scores or scores
        return scores

    def _evaluate_domains(self) -> None:
        """Evaluate the global model on each client's test set, if the clients are simulated."""
        federation, is_last = self.plan.federation, self._is_last
        if not isinstance(federation, Federation):
            return
        results = self.evaluator.evaluate_domains(federation, per_example=is_last)
        if self.storage.folder and is_last:
            scores = {client: r.example_scores for client, r in results.items() if r.example_scores is not None}
            write_example_scores(self.storage.folder, scores, GLOBAL_MODEL_SCORES)
        for client, result in results.items():
            self._log(client or "server", "common", result.scores)

    def _log(self, who: str, split: str, values: Mapping[str, Any]) -> None:
        progress = self.engine.progress
        self.storage.metrics.add(progress.rounds, who, split, values, progress.traffic)


def _mean_over_clients(results: ClientResults) -> dict[str, float]:
    return results.mean or mean_metrics(results.scores.values())
