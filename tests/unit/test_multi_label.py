"""Multi-label classification: lists of labels in own files, metrics, packing, partitions, and an export for transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
import transformers
from typer.testing import CliRunner

from motet.algorithms import fedavg
from motet.cli import app
from motet.core.errors import ConfigError, DataError, MotetError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.federation_builder import build_task
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.modules.model import select_model_inputs
from motet.learning.solver import Solver
from motet.partitions import label, quantity
from motet.tasks.metric_statistics import metric_from_statistics
from motet.tasks.multi_label import BinaryCrossEntropy, multi_label
from motet.testing import check_algorithm, check_task, make_federation

WORDS = {"food": "bread", "music": "choir", "weather": "rain"}


def make_rows(count: int) -> list[dict[str, Any]]:
    """Texts with the words of all their labels; every eighth text has none."""
    rows = []
    for i in range(count):
        topics = [topic for bit, topic in enumerate(WORDS) if i >> bit & 1]
        words = " ".join([WORDS[topic] for topic in topics] * 3)
        rows.append({"body": f"the day {words} number {i}", "topics": topics, "author": f"author-{i % 3}"})
    return rows


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rows = make_rows(60)
    columns = {"text": [row["body"] for row in rows], "labels": [row["topics"] for row in rows]}
    return Corpus("letters", "multi_label", columns, num_train=44)


def load(path: Path, task: str | None = None, **options: Any) -> Corpus:
    return load_corpus(DataConfig(path=str(path), **options), Seed(0), task)


def test_lists_of_labels_are_read_from_every_table(tmp_path: Path) -> None:
    rows = make_rows(16)
    lines = tmp_path / "letters.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = sorted((row["body"], row["topics"]) for row in rows)
    parquet = tmp_path / "letters.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), parquet)
    csv = tmp_path / "letters.csv"
    csv.write_text("body,topics\n" + "".join(f'{row["body"]},"{", ".join(row["topics"])}"\n' for row in rows))
    corpora = [load(path, text="body", label="topics") for path in (lines, parquet)]
    corpora.append(load(csv, task="multi_label", text="body", label="topics"))
    for loaded in corpora:
        assert loaded.task == "multi_label"
        assert sorted(zip(loaded.columns["text"], loaded.columns["labels"], strict=True)) == expected


def test_numbers_in_lists_are_names_and_other_values_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("".join(f'{{"text": "text {i}", "labels": [{i % 3}, 7]}}\n' for i in range(10)))
    assert multi_label(load(path)).labels == ("0", "1", "2", "7")
    path.write_text('{"text": "a", "labels": ["x"]}\n{"text": "b", "labels": [1.5]}\n')
    with pytest.raises(DataError, match=r"line 2: column 'labels' holds \[1\.5\]; expected a list of strings"):
        load(path)


def test_a_task_is_inferred_only_from_lists(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"text": "a", "labels": "x"}\n{"text": "b", "labels": "y"}\n')
    with pytest.raises(DataError, match=r"data\.label=labels"):
        load(path)
    assert load(path, label="labels", test_share=0.5).task == "classification"
    path.write_text('{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": ["y"]}\n')
    with pytest.raises(DataError, match=r"expected one value\. To predict lists of labels, set task\.type"):
        load(path, task="classification")


def test_metrics_match_scikit_learn_and_follow_from_the_statistics(corpus: Corpus) -> None:
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    task = multi_label(corpus, threshold=0.7)
    true = task.label_matrix(corpus)
    assert true[6].tolist() == [0, 1, 1]  # food is the first of the sorted labels
    logits = torch.from_numpy(np.random.default_rng(0).normal(0.5, 2, true.shape))
    predicted = (logits.sigmoid() > 0.7).numpy()
    features = Features("m", {"input_ids": Ragged.from_lists([[1]] * len(true)), "labels": true})
    examples, predictions = Examples(features, np.arange(len(true))), {"logits": logits, "loss": torch.ones(len(true))}
    scores = task.compute_metrics(predictions, examples)
    assert scores == pytest.approx(
        {
            "f1_micro": f1_score(true, predicted, average="micro"),
            "f1_macro": f1_score(true, predicted, average="macro"),
            "subset_accuracy": accuracy_score(true, predicted),
            "label_accuracy": 1 - hamming_loss(true, predicted),
            "loss": 1.0,
        }
    )
    means = task.score_examples(predictions, examples).mean(0, dtype=np.float64)
    assert means[0] == pytest.approx(scores["subset_accuracy"])
    micro = metric_from_statistics("f1_micro", len(means) - 1)
    assert micro is not None
    assert float(micro(means[1:], len(true))) == pytest.approx(scores["f1_micro"])


def test_the_loss_is_the_one_of_transformers(corpus: Corpus) -> None:
    federation = make_federation(corpus, clients=2, public_share=0.0)
    module = federation.model.module
    assert module.config.problem_type == "multi_label_classification"
    batch = federation.server_participant.split("global").batch(np.arange(8))
    losses, weights = BinaryCrossEntropy().losses(lambda batch: module(**select_model_inputs(batch)), batch)  # type: ignore[arg-type, misc]
    expected = module(**{**batch, "labels": batch["labels"].float()}).loss
    assert losses.mean().item() == pytest.approx(expected.item(), rel=1e-5)
    assert weights.tolist() == [1.0] * 8


def test_the_task_and_federated_training_keep_their_contracts(corpus: Corpus) -> None:
    """Among other rules: packed clients learn what they learn alone, and sums can be hidden."""
    check_task(multi_label, corpus)
    federation = make_federation(corpus, clients=3, public_share=0.0)
    check_algorithm(fedavg, federation=federation, solver=Solver(optimizer="sgd", lr=0.2, batch=8, steps=2))


def test_label_partitions_are_refused_and_others_work(corpus: Corpus) -> None:
    assert len(quantity(corpus, Seed(0), clients=3)) == 3
    with pytest.raises(ConfigError, match=r"multi_label, whose rows do not have one label each\. Use feature"):
        label(corpus, Seed(0), clients=3)
    assert len(label(corpus, Seed(0), clients=3, by="labels")) == 3  # each set of labels is one category


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        ([["x"], ["x"]], {}, r"the training rows have 1 different labels, 'x'; .* at least two"),
        ([["x"], ["y"], ["z"]], {}, r"row 2: label 'z' is not one of the model's 2 labels \(x, y\)"),
        ([["x"], ["y"]], {"threshold": 1.0}, r"task\.threshold is 1\.0; expected a probability"),
    ],
)
def test_mistakes_are_explained(labels: list[list[str]], options: dict[str, Any], sentence: str) -> None:
    corpus = Corpus("c", "multi_label", {"text": ["a"] * len(labels), "labels": labels}, num_train=2)
    with pytest.raises(MotetError, match=sentence):
        build_task(ComponentConfig("multi_label", options), corpus).label_matrix(corpus)  # type: ignore[attr-defined]


def test_a_recipe_trains_on_own_data_and_transformers_loads_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(64)))
    Path("letters.yaml").write_text(
        "{rounds: 3, data: {path: letters.jsonl, text: body, label: topics, client: author}, partition: natural, "
        "algorithm: fedavg, model: {name: tiny, max_tokens: 16}, solver: {optimizer: adamw, lr: 0.01, batch: 8, epochs: 4}, "
        "transport: {workers: 0}}"
    )
    check = CliRunner().invoke(app, ["check", "letters.yaml"])
    assert "multi_label, primary metric f1_micro, 3 labels: food, music, weather" in check.output, check.output
    result = CliRunner().invoke(app, ["run", "letters.yaml", "--out", "run"])
    assert 'transformers.pipeline("text-classification"' in result.output, result.output
    assert json.loads(Path("run/summary.json").read_text())["final"]["f1_micro"] > 0.6
    pipeline = transformers.pipeline("text-classification", model="run/model", device="cpu")
    scores = {entry["label"]: entry["score"] for entry in pipeline("the day bread bread bread rain rain", top_k=None)}
    assert set(scores) == set(WORDS)
    logits = pipeline.model(**pipeline.tokenizer("the day bread bread bread rain rain", return_tensors="pt")).logits
    assert list(scores.values()) == pytest.approx(sorted(logits.sigmoid()[0].tolist(), reverse=True), abs=1e-5)
