"""Every task scores every example; what it is judged by is the scores' mean, or follows from what is tallied beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import fedavg
from motet.core.rng import Seed
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.loop.example_scores import read_example_scores, write_example_scores
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.recipe.run_config import ComponentConfig, EvaluationConfig
from motet.learning.context import EvaluationResult
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.load_model import ModelConfig
from motet.tasks.sufficient_statistics import class_statistics, metric_from_statistics
from motet.tasks.text_metrics import generation_example_scores, generation_scores

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
IS_A_MEAN = {"toy-classification", "toy-pairs", "toy-qa", "toy-seq2seq"}


def judged(name: str) -> tuple[EvaluationResult, int, str]:
    corpus = BUILTIN_CORPORA[name]().sample(24, 12, np.random.default_rng(0))
    config = SMALL if name not in ("toy-seq2seq", "toy-lm") else {}
    options = {
        "toy-qa": {"question_tokens": 8},
        "toy-seq2seq": {"target_tokens": 6, "beams": 1},
        "toy-lm": {"group": False},
    }
    choice = ComponentConfig("auto", options.get(name, {}))
    made = federate_corpus(
        ModelConfig("tiny", 32, config=config), corpus, ComponentConfig("uniform", {"clients": 2}), Seed(3), task=choice
    )
    work, executor = (
        made.server_context(0).evaluate(made.model.initial_params, "global", per_example=True),
        SerialExecutor(torch.device("cpu")),
    )
    try:
        job = next(work)
        while True:
            job = work.send(executor.run(job))
    except StopIteration as end:
        return end.value, len(corpus) - corpus.num_train, made.task.primary_metric


@pytest.mark.parametrize("name", [n for n in BUILTIN_CORPORA if n.startswith("toy")])
def test_every_example_has_a_score(name: str) -> None:
    found, examples, primary_metric = judged(name)
    assert found.example_scores is not None
    assert found.example_scores.dtype == np.float32
    assert np.isfinite(found.example_scores).all()
    assert len(found.example_scores) >= examples if name == "toy-lm" else len(found.example_scores) == examples
    scores, tallies = found.example_scores[:, 0], found.example_scores[:, 1:].mean(0, dtype=np.float64)
    if name in IS_A_MEAN:
        assert scores.mean() == pytest.approx(found.scores[primary_metric], abs=1e-6)
    if name == "toy-regression":
        assert -scores.mean() == pytest.approx(found.scores["loss"], rel=1e-5)
    follow = {m: how(tallies) for m in found.scores if (how := metric_from_statistics(m, len(tallies)))}
    assert follow and (primary_metric in follow or name in IS_A_MEAN)
    of_words, smoothed = name == "toy-tagging", not found.scores.get("bleu")
    follow = {m: v for m, v in follow.items() if not (of_words and m == "accuracy") and not (smoothed and m == "bleu")}
    assert follow == pytest.approx({m: found.scores[m] for m in follow}, abs=5e-5)


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_metrics_follow_from_tallies_as_scikit_learn_defines_them(classes: int) -> None:
    from sklearn import metrics

    rng = np.random.default_rng(classes)
    truth, said = (
        rng.integers(0, classes, 200),
        rng.integers(0, max(2, classes - 1), 200),
    )  # one class may never be said
    said = np.where(rng.random(200) < 0.5, truth, said)
    means = class_statistics(truth, said, classes).mean(0, dtype=np.float64)
    expected = {
        "accuracy": metrics.accuracy_score(truth, said),
        "f1_macro": metrics.f1_score(truth, said, average="macro", zero_division=0),
        "f1_weighted": metrics.f1_score(truth, said, average="weighted", zero_division=0),
        "matthews": metrics.matthews_corrcoef(truth, said),
        "f1": metrics.f1_score(truth == 0, said == 0),
        "precision": metrics.precision_score(truth == 0, said == 0),
        "recall": metrics.recall_score(truth == 0, said == 0),
    }
    found = {name: metric_from_statistics(name, len(means)) for name in expected}
    assert {name: how(means) for name, how in found.items() if how} == pytest.approx(expected)


def test_a_corpus_bleu_follows_from_the_tallies_of_its_texts() -> None:
    gold = [
        "a small cat sat on the old mat today",
        "the dog ran far away from the big house",
        "we all went home at ten",
    ]
    said = ["a small cat sat on the mat", "the dog ran far away from a big house now", "we all went home at ten"]
    rows = generation_example_scores(said, gold)
    bleu = metric_from_statistics("bleu", rows.shape[1] - 1)
    assert bleu is not None
    assert bleu(rows[:, 1:].mean(0, dtype=np.float64)) == pytest.approx(generation_scores(said, gold)["bleu"], rel=1e-6)


def test_what_tallies_do_not_tell_is_not_made_up() -> None:
    assert metric_from_statistics("spearman", 5) is None
    assert metric_from_statistics("f1_weighted", 0) is None
    assert metric_from_statistics("accuracy", 1) is None
    assert class_statistics(np.zeros(4, int), np.zeros(4, int), 1000).shape == (4, 0)


def test_example_scores_of_clients_are_kept_only_on_request(federation, executor) -> None:  # type: ignore[no-untyped-def]
    kept, _ = execute_plan(
        make_plan(federation, fedavg(), 1, evaluation=EvaluationConfig(save_example_scores=True)), executor
    )
    assert {len(items) for owner, items in kept.items.items() if owner} == set(federation.partition.test.sizes.tolist())
    own = np.mean([items[:, 0].mean() for owner, items in kept.items.items() if owner])
    assert own == pytest.approx(kept.clients_final["mean"], abs=1e-6)
    plain, _ = execute_plan(make_plan(federation, fedavg(), 1), executor)
    assert set(plain.items) == {""}
    assert plain.items[""][:, 0].mean() == pytest.approx(plain.final["accuracy"], abs=1e-6)


def test_items_are_read_as_they_were_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    shapes = {"": (3, 7), "client-0": (0, 1), "client-1": (1, 4)}
    items = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    write_example_scores(tmp_path, items)
    found = read_example_scores(tmp_path)
    assert list(found) == list(items)
    assert all(np.array_equal(found[n], items[n]) for n in items)
    assert read_example_scores(tmp_path / "elsewhere") == {}
