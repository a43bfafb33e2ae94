"""What a run evaluates: the global model or each client's own, on which clients, and under a secure sum."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runs import run_rounds

from motet.algorithms import fedavg, isolated
from motet.experiment.build.federation import Federation
from motet.experiment.recipe.run_config import EvaluationConfig
from motet.learning.solver import Solver
from motet.secure import SECURE

SOLVER = Solver(lr=0.01, batch=8)


def test_a_global_model_is_evaluated_on_the_global_test_set(federation: Federation) -> None:
    run = run_rounds(federation, fedavg(SOLVER), 1)
    result = run.evaluator.evaluate_split("global", per_example=True)
    assert result.groups == {}
    assert result.example_scores is not None
    assert len(result.example_scores) == len(federation.server.global_test_rows)
    assert result.example_scores[:, 0].mean() == pytest.approx(result.scores["accuracy"])


def test_personal_models_are_evaluated_by_their_clients(federation: Federation) -> None:
    run = run_rounds(federation, isolated(SOLVER), 1)
    result = run.evaluator.evaluate_split("global")
    assert list(result.groups) == ["toy-classification"]
    assert result.scores["accuracy"] == result.groups["toy-classification"]["accuracy"]
    assert result.example_scores is None


def test_the_number_of_evaluated_clients_can_be_limited(federation: Federation) -> None:
    run = run_rounds(federation, isolated(SOLVER), 1, evaluation=EvaluationConfig(clients=2))
    spread = [federation.clients[0], federation.clients[len(federation.clients) // 2]]
    assert list(run.evaluator.evaluate_clients().scores) == spread, "the first clients may be the most skewed ones"


def test_scores_of_single_examples_are_returned_on_request(federation: Federation) -> None:
    evaluator = run_rounds(federation, fedavg(SOLVER), 1).evaluator
    plain, detailed = evaluator.evaluate_clients(), evaluator.evaluate_clients(per_example=True)
    assert plain.scores == detailed.scores
    assert plain.example_scores == {}
    sizes = {client: len(scores) for client, scores in detailed.example_scores.items()}
    assert sizes == {client: len(federation.participant(client).split("test")) for client in federation.clients}


def test_under_a_secure_sum_only_the_mean_over_clients_is_known(federation: Federation) -> None:
    plain = run_rounds(federation, isolated(SOLVER), 1).evaluator.evaluate_clients()
    masked = run_rounds(federation, isolated(SOLVER), 1, secure=SECURE["secagg"]()).evaluator.evaluate_clients()
    assert masked.scores == {}
    mean = np.mean([scores["accuracy"] for scores in plain.scores.values()])
    assert masked.mean["accuracy"] == pytest.approx(mean, abs=1e-3)


def test_a_global_model_is_evaluated_on_each_clients_test_set(federation: Federation) -> None:
    run = run_rounds(federation, fedavg(SOLVER), 1)
    results = run.evaluator.evaluate_domains(federation, per_example=True)
    assert set(results) == {"", *federation.clients}
    assert results["client-1"].scores == run.evaluator.evaluate_clients().scores["client-1"]


def test_only_simulations_with_a_dev_share_have_a_dev_set(federation: Federation) -> None:
    assert not run_rounds(federation, fedavg(SOLVER), 1).plan.has_dev_set
