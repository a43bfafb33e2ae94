"""One text, or a pair of texts, one label."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError, DataError, did_you_mean
from motet.datasets.corpus import Corpus
from motet.learning.data.features import Column, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Logits
from motet.learning.objectives.supervised import CrossEntropy
from motet.tasks.sufficient_statistics import class_statistics, with_statistics
from motet.tasks.tokenization import pools_last_position, tokenize


@dataclass(frozen=True)
class Classification:
    labels: tuple[str, ...]
    positive: str | None = None
    attention_mask: bool = True
    name: str = "classification"
    primary_metric: str = "accuracy"
    objective: CrossEntropy = CrossEntropy()
    readout: Logits = Logits()

    @property
    def metric_names(self) -> tuple[str, ...]:
        names = ("accuracy", "f1_macro", "f1_weighted", "matthews", "loss")
        return (*names, "f1") if self.positive is not None else names

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        pairs = corpus.columns.get("second")
        ids = tokenize(model.tokenizer, corpus.column("text"), max_tokens, pairs, full=not self.attention_mask)
        columns: dict[str, Column] = {**ids, "labels": self.label_ids(corpus)}
        return Features(corpus.fingerprint, columns, raw_columns=corpus.columns, pad_left=pools_last_position(model))

    def texts(self, corpus: Corpus) -> Sequence[str]:
        if "second" not in corpus.columns:
            return corpus.column("text")
        return [f"{a} {b}" for a, b in zip(corpus.column("text"), corpus.column("second"), strict=True)]

    def label_ids(self, corpus: Corpus) -> np.ndarray:
        known = {label: i for i, label in enumerate(self.labels)}
        column = corpus.column("label")
        unknown = next(((row, v) for row, v in enumerate(column) if v not in known), None)
        if unknown is not None:
            row, value = unknown
            raise DataError(
                f"{corpus.name}, row {row}: label '{value}' is not one of the model's {len(known)} labels "
                f"({', '.join(self.labels[:10])}).{did_you_mean(str(value), self.labels)} Mend the row, or train with its label."
            )
        return np.fromiter((known[v] for v in column), np.int64, count=len(column))

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """Right or wrong; with tallies."""
        truth, said = _truth(examples), readings["logits"].argmax(-1).numpy()
        count = len(self.labels)
        asked = (
            self.labels.index(self.positive) if self.positive is not None else 0
        )  # F1 is about it, so it comes first
        return with_statistics(truth == said, class_statistics((truth - asked) % count, (said - asked) % count, count))

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

        truth, said = _truth(examples), readings["logits"].argmax(-1).numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a client whose test set has one label is no surprise here
            matthews = float(matthews_corrcoef(truth, said))
        scores = {
            "accuracy": float(accuracy_score(truth, said)),
            "f1_macro": float(f1_score(truth, said, average="macro", zero_division=0)),
            "f1_weighted": float(f1_score(truth, said, average="weighted", zero_division=0)),
            "matthews": matthews,
            "loss": float(readings["loss"].double().mean()),
        }
        if self.positive is not None:
            index = self.labels.index(self.positive)
            scores["f1"] = float(f1_score(truth == index, said == index, zero_division=0))
        return scores


def _truth(examples: Examples) -> np.ndarray:
    labels = examples.features.columns["labels"]
    if isinstance(labels, Ragged):
        raise TypeError("classification has one label a text")
    truth: np.ndarray = labels[examples.rows]
    return truth


def classification(corpus: Corpus, attention_mask: bool = True, positive: str | None = None) -> Classification:
    """One text, or a pair of texts (column second), one label: accuracy, F1, Matthews' correlation."""
    labels = corpus.labels
    if len(labels) < 2:
        raise DataError(
            f"{corpus.name}: the training rows have one label, '{labels[0]}'; to learn to tell, two are needed."
        )
    if positive is not None and positive not in labels:
        raise ConfigError(
            f"task.positive is '{positive}'; the labels are {', '.join(labels)}.{did_you_mean(positive, labels)}"
        )
    if positive is None and len(labels) == 2:
        negative = ("not_", "un", "neg", "no", "0", "false")
        positive = next((v for v in reversed(labels) if not v.lower().startswith(negative)), labels[-1])
    return Classification(labels, positive, attention_mask)
