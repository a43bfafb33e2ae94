"""Classification: one label for a text or a pair of texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from motet.core.errors import ConfigError, DataError
from motet.core.suggestions import did_you_mean
from motet.datasets.corpus import Corpus
from motet.learning.confusion_matrix import Confusion
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Logits
from motet.learning.objectives.supervised import CrossEntropy
from motet.tasks.metric_statistics import class_metrics, class_statistics, with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import build_text_features

CLASS_METRICS = ("balanced_accuracy", "f1_macro", "f1_weighted", "matthews")
NEGATIVE_PREFIXES = ("not_", "un", "neg", "no", "0", "false")


@dataclass(frozen=True)
class Classification(Task):
    """`positive_label` is the class of the metric `f1`. Without `attention_mask`, padding counts as text.

    `class_weights` has a weight for each label, in their order; empty: all weights are 1.
    """

    labels: tuple[str, ...]
    positive_label: str | None = None
    attention_mask: bool = True
    name: str = "classification"
    primary_metric: str = "accuracy"
    class_weights: tuple[float, ...] = ()
    readout: Logits = Logits()

    def __post_init__(self) -> None:
        if self.class_weights and len(self.class_weights) != len(self.labels):
            raise ConfigError(
                f"the task has {len(self.labels)} labels and {len(self.class_weights)} class weights; "
                "give a weight for each label."
            )

    @property
    def objective(self) -> CrossEntropy:
        return CrossEntropy(self.class_weights)

    @property
    def metric_names(self) -> tuple[str, ...]:
        names = ("accuracy", *CLASS_METRICS, "loss")
        return (*names, "f1") if self.positive_label is not None else names

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        return build_text_features(
            corpus, model, max_tokens, self.label_ids(corpus), pad_to_max=not self.attention_mask
        )

    def label_ids(self, corpus: Corpus) -> np.ndarray:
        ids = {label: i for i, label in enumerate(self.labels)}
        column = corpus.column("label")
        for row, label in enumerate(column):
            if label not in ids:
                raise unknown_label(corpus, row, label, self.labels)
        return np.fromiter((ids[label] for label in column), np.int64, count=len(column))

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        counts = self.count_confusions(predictions, examples).counts
        scores = {
            "accuracy": float(np.diagonal(counts).sum() / counts.sum()),
            **class_metrics(CLASS_METRICS, counts),
            "loss": float(predictions["loss"].double().mean()),
        }
        if self.positive_label is not None:
            first = self.labels.index(self.positive_label)
            scores |= class_metrics(["f1"], np.roll(counts, -first, axis=(0, 1)))
        return scores

    def count_confusions(self, predictions: Predictions, examples: Examples) -> Confusion:
        return Confusion.count(self.labels, examples.column("labels"), predictions["logits"].argmax(-1).numpy())

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return 1 if the prediction is correct, else 0; then class statistics, with the class of `f1` first."""
        true, predicted = examples.column("labels"), predictions["logits"].argmax(-1).numpy()
        count = len(self.labels)
        first = self.labels.index(self.positive_label) if self.positive_label is not None else 0
        statistics = class_statistics((true - first) % count, (predicted - first) % count, count)
        return with_statistics(true == predicted, statistics)


def unknown_label(corpus: Corpus, row: int, label: str, labels: Sequence[str]) -> DataError:
    return DataError(
        f"{corpus.name}, row {row}: label '{label}' is not one of the model's {len(labels)} labels "
        f"({', '.join(labels[:10])}).{did_you_mean(str(label), labels)} Fix the row, or add rows with this label to the "
        "texts that define the labels: the training texts or, for clients that join a run, the corpus on the server."
    )


def classification(
    corpus: Corpus,
    attention_mask: bool = True,
    positive_label: str | None = None,
    class_weights: Literal["balanced"] | Mapping[str, float] | None = None,
) -> Classification:
    """One label for a text or a pair of texts (column second). Metrics: accuracy, F1, Matthews correlation."""
    labels = corpus.labels
    if len(labels) < 2:
        raise DataError(
            f"{corpus.name}: the training rows have one label, '{labels[0]}'; classification needs at least two."
        )
    if positive_label is not None and positive_label not in labels:
        raise ConfigError(
            f"task.positive_label is '{positive_label}'; the labels are {', '.join(labels)}."
            f"{did_you_mean(positive_label, labels)}"
        )
    if positive_label is None and len(labels) == 2:
        candidates = (label for label in reversed(labels) if not label.lower().startswith(NEGATIVE_PREFIXES))
        positive_label = next(candidates, labels[-1])
    return Classification(labels, positive_label, attention_mask, class_weights=_weight_classes(corpus, class_weights))


def _weight_classes(corpus: Corpus, weights: Literal["balanced"] | Mapping[str, float] | None) -> tuple[float, ...]:
    """Return the weight of each label in the loss. `balanced` weights are inverse to the number of training rows."""
    labels = corpus.labels
    if weights is None:
        return ()
    if weights == "balanced":
        counts = Counter(corpus.column("label")[: corpus.num_train])
        return tuple(corpus.num_train / (len(labels) * counts[label]) for label in labels)
    by_label = {str(label): _parse_weight(str(label), weight) for label, weight in weights.items()}
    if unknown := [label for label in by_label if label not in labels]:
        raise ConfigError(
            f"task.class_weights names '{unknown[0]}'; the labels are {', '.join(labels)}."
            f"{did_you_mean(unknown[0], labels)}"
        )
    return tuple(by_label.get(label, 1.0) for label in labels)


def _parse_weight(label: str, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise ConfigError(
            f"task.class_weights.{label} is {weight!r}; expected a number above 0, such as task.class_weights.{label}=2."
        )
    return float(weight)
