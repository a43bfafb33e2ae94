"""Multi-label classification: any number of labels for a text or a pair of texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError, DataError
from motet.core.messages import message
from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective
from motet.tasks.classification import unknown_label
from motet.tasks.metric_statistics import MAX_CLASSES, with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import build_text_features


def _binary_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of each text, averaged over the labels."""
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").mean(-1)


@message
@dataclass(frozen=True)
class BinaryCrossEntropy(Objective):
    """Each label is a yes-or-no question. Labels are a row of zeros and ones."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = _binary_losses(forward(batch)["logits"].float(), batch["labels"])
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class LabelLogits(Readout):
    """The logit of each label, and the loss."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits = forward(batch)["logits"].float()
        return {"logits": logits, "loss": _binary_losses(logits, batch["labels"])}


@dataclass(frozen=True)
class MultiLabel(Task):
    """A label is predicted if its probability is above `threshold`."""

    labels: tuple[str, ...]
    threshold: float = 0.5
    name: str = "multi_label"
    primary_metric: str = "f1_micro"
    metric_names: tuple[str, ...] = ("f1_micro", "f1_macro", "subset_accuracy", "label_accuracy", "loss")
    objective: BinaryCrossEntropy = BinaryCrossEntropy()
    readout: LabelLogits = LabelLogits()

    @property
    def metric_details(self) -> dict[str, str]:
        return {
            "f1_micro": f"over all decisions about a label; threshold {self.threshold:g}",
            "f1_macro": f"mean over the {len(self.labels)} labels; 0 for a label that does not occur",
            "subset_accuracy": "share of texts with all labels right",
            "label_accuracy": "1 - Hamming loss",
        }

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        return build_text_features(corpus, model, max_tokens, self.label_matrix(corpus))

    def label_matrix(self, corpus: Corpus) -> np.ndarray:
        """Return a row for each text, with 1 for each of its labels and 0 for the others."""
        ids = {label: i for i, label in enumerate(self.labels)}
        matrix = np.zeros((len(corpus), len(ids)), np.uint8)
        for row, labels in enumerate(corpus.column("labels")):
            for label in labels:
                if label not in ids:
                    raise unknown_label(corpus, row, label, self.labels)
                matrix[row, ids[label]] = 1
        return matrix

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        from sklearn.metrics import f1_score

        true, predicted = self._true_and_predicted(predictions, examples)
        return {
            "f1_micro": float(f1_score(true, predicted, average="micro", zero_division=0)),
            "f1_macro": float(f1_score(true, predicted, average="macro", zero_division=0)),
            "subset_accuracy": float((true == predicted).all(1).mean()),
            "label_accuracy": float((true == predicted).mean()),
            "loss": float(predictions["loss"].double().mean()),
        }

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return 1 if all labels of a text are right, else 0; then correct, predicted and true labels."""
        true, predicted = self._true_and_predicted(predictions, examples)
        is_correct = (true == predicted).all(1)
        statistics = [true & predicted, predicted, true]
        if len(self.labels) > MAX_CLASSES:
            statistics = [labels.sum(1) for labels in statistics]
        return with_statistics(is_correct, *statistics)

    def _true_and_predicted(self, predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        is_predicted = predictions["logits"] > math.log(self.threshold / (1 - self.threshold))
        return examples.column("labels"), is_predicted.numpy().astype(np.uint8)


def multi_label(corpus: Corpus, threshold: float = 0.5) -> MultiLabel:
    """Any number of labels for a text or a pair of texts (column second). Metrics: micro and macro F1, accuracy."""
    if not 0 < threshold < 1:
        raise ConfigError(f"task.threshold is {threshold}; expected a probability between 0 and 1, such as 0.5.")
    labels = sorted({label for row in corpus.column("labels")[: corpus.num_train] for label in row})
    if len(labels) < 2:
        raise DataError(
            f"{corpus.name}: the training rows have {len(labels)} different labels{''.join(f', {x!r}' for x in labels)}; "
            "multi-label classification needs at least two."
        )
    return MultiLabel(tuple(labels), threshold)
