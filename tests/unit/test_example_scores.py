"""Per-example scores: metrics are their mean, or follow from the sufficient statistics of the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import fedavg
from motet.core.rng import Seed
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.loop.example_scores import read_example_scores, write_example_scores
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.recipe.run_config import ComponentConfig, EvaluationConfig
from motet.learning.context import EvaluationResult
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.model_config import ModelConfig
from motet.tasks.metric_statistics import class_statistics, metric_from_statistics

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
PRIMARY_METRIC_IS_A_MEAN = {
    "toy-classification",
    "toy-pairs",
    "toy-qa",
    "toy-seq2seq",
    "toy-instruct",
    "toy-preference",
}


def evaluate_initial_model(name: str) -> tuple[EvaluationResult, int, str]:
    """Return the result, the number of test examples and the primary metric."""
    corpus = BUILTIN_CORPORA[name]().sample(24, 12, np.random.default_rng(0))
    config = SMALL if name not in ("toy-seq2seq", "toy-lm") else {}
    options = {
        "toy-qa": {"max_question_tokens": 8},
        "toy-seq2seq": {"max_target_tokens": 6, "num_beams": 1},
        "toy-lm": {"group_texts": False},
    }
    task = ComponentConfig("auto", options.get(name, {}))
    federation = federate_corpus(
        ModelConfig("tiny", 32, config=config), corpus, ComponentConfig("uniform", {"clients": 2}), Seed(3), task=task
    )
    work, executor = (
        federation.server_context(0).evaluate(federation.model.initial_params, "global", per_example=True),
        SerialExecutor(torch.device("cpu")),
    )
    try:
        job = next(work)
        while True:
            job = work.send(executor.run(job))
    except StopIteration as end:
        return end.value, len(corpus) - corpus.num_train, federation.task.primary_metric


@pytest.mark.parametrize("name", [n for n in BUILTIN_CORPORA if n.startswith("toy")])
def test_every_example_has_a_score(name: str) -> None:
    result, num_examples, primary_metric = evaluate_initial_model(name)
    assert result.example_scores is not None
    assert result.example_scores.dtype == np.float32
    assert np.isfinite(result.example_scores).all()
    assert (
        len(result.example_scores) >= num_examples if name == "toy-lm" else len(result.example_scores) == num_examples
    )
    scores, means = result.example_scores[:, 0], result.example_scores[:, 1:].mean(0, dtype=np.float64)
    if name in PRIMARY_METRIC_IS_A_MEAN:
        assert scores.mean() == pytest.approx(result.scores[primary_metric], abs=1e-6)
    if name == "toy-regression":
        assert -scores.mean() == pytest.approx(result.scores["loss"], rel=1e-5)
    computed = {
        m: metric(means, len(scores)) for m in result.scores if (metric := metric_from_statistics(m, len(means)))
    }
    assert primary_metric in computed or name in PRIMARY_METRIC_IS_A_MEAN
    if name == "toy-tagging":
        del computed["accuracy"]  # of words, while the statistics are of entities
    assert computed == pytest.approx({m: result.scores[m] for m in computed}, abs=5e-5)


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_class_metrics_from_statistics_match_scikit_learn(classes: int) -> None:
    from sklearn import metrics

    rng = np.random.default_rng(classes)
    true, predicted = (
        rng.integers(0, classes, 200),
        rng.integers(0, max(2, classes - 1), 200),
    )  # one class may never be predicted
    predicted = np.where(rng.random(200) < 0.5, true, predicted)
    means = class_statistics(true, predicted, classes).mean(0, dtype=np.float64)
    expected = {
        "accuracy": metrics.accuracy_score(true, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(true, predicted),
        "f1_macro": metrics.f1_score(true, predicted, average="macro", zero_division=0),
        "f1_weighted": metrics.f1_score(true, predicted, average="weighted", zero_division=0),
        "matthews": metrics.matthews_corrcoef(true, predicted),
        "f1": metrics.f1_score(true == 0, predicted == 0),
        "precision": metrics.precision_score(true == 0, predicted == 0),
        "recall": metrics.recall_score(true == 0, predicted == 0),
    }
    metrics_by_name = {name: metric_from_statistics(name, len(means)) for name in expected}
    assert {name: metric(means, 200) for name, metric in metrics_by_name.items() if metric} == pytest.approx(expected)


def test_metric_that_statistics_do_not_determine_is_none() -> None:
    assert metric_from_statistics("spearman", 5) is None
    assert metric_from_statistics("f1_weighted", 0) is None
    assert metric_from_statistics("accuracy", 1) is None
    assert class_statistics(np.zeros(4, int), np.zeros(4, int), 1000).shape == (4, 0)


def test_example_scores_of_clients_are_kept_only_on_request(federation: Federation, executor: SerialExecutor) -> None:
    result = execute_plan(
        make_plan(federation, fedavg(), 1, evaluation=EvaluationConfig(save_example_scores=True)), executor
    )
    assert {len(rows) for client, rows in result.example_scores.items() if client} == set(
        federation.partition.test.sizes.tolist()
    )
    mean = np.mean([rows[:, 0].mean() for client, rows in result.example_scores.items() if client])
    assert mean == pytest.approx(result.client_spread["mean"], abs=1e-6)
    default = execute_plan(make_plan(federation, fedavg(), 1), executor)
    assert set(default.example_scores) == {""}
    assert default.example_scores[""][:, 0].mean() == pytest.approx(default.final["accuracy"], abs=1e-6)


def test_example_scores_survive_a_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"": (3, 7), "client-0": (0, 1), "client-1": (1, 4)}
    scores = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    write_example_scores(tmp_path, scores)
    restored = read_example_scores(tmp_path)
    assert list(restored) == list(scores)
    assert all(np.array_equal(restored[n], scores[n]) for n in scores)
    assert read_example_scores(tmp_path / "elsewhere") == {}
